"""Generalised linear models of nodes, from sums: what a row adds, and Newton's steps."""
