"""PFDBNL: the server's half and the site's half.

A site's step, what it does when a stage begins, and what the server makes of the sum.
May import: core.arrays, core.fdbnl, core.graphs, core.optimum, core.orders, core.solvers.
"""
