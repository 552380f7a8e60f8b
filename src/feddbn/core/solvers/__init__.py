"""Convex and smooth problems that more than one method solves."""
