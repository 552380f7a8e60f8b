"""Simulators with known truth."""
