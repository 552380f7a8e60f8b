"""Scores of single edges."""
