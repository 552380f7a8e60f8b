"""From recordings to the columns of a design, their rows, and the Gram matrices of these.

A design is data, never code. What is done to cells and what is taken off recordings is here, too.
May import: core.arrays, core.backend, core.kinds, core.statistics, errors, findings, settings.
"""
