"""Adapters to distributed engines, one folder each."""
