"""Secure aggregation, noise, accounting, and the rules of a site: what keeps a sum from telling more than a sum.

No I/O; randomness is passed in.
May import: core, errors, method_table, settings.
"""
