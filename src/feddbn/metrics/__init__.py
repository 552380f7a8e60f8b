"""Scores of a learned network against a known one."""
