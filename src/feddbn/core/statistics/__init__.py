"""Sums of rows and what can be done with them."""
