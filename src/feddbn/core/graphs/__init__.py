"""Which edges may be there, which are, and how far weights are from having no cycles.

Shared by every learner.
May import: core.arrays, core.backend, errors, settings.
"""
