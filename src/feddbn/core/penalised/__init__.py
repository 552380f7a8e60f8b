"""Penalised least squares over acyclic networks: `PenalisedLearner`, and the paper's two protocols in rounds.

Lassos, acyclicity and its path, the best order with its certificate; the halves of server and site of FDBNL and PFDBNL.
May import: core.arrays, core.backend, core.constraints, core.orders, core.statistics, errors, settings, shown.
"""
