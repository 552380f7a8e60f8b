"""Convex and smooth problems that more than one method solves.

Lassos, proximal steps, and what gradients have shown of a quadratic.
May import: core.arrays, core.graphs.
"""
