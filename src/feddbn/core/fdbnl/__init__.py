"""FDBNL: the server's half, the site's half, and the path that both follow.

State machines without I/O; pooled DYNOTEARS is both halves on one matrix.
May import: core.arrays, core.backend, core.graphs, core.optimum, core.orders, core.solvers, core.statistics, errors.
"""
