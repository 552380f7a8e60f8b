"""Sums of rows and what can be done with them: moments, surveys, missing cells, residual checks, resampling.

Everything here adds up over sites or reads what was added up.
May import: core.arrays, core.backend, core.constraints, core.designs, errors, findings, settings.
"""
