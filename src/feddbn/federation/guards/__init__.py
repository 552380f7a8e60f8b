"""What stands between a site's answers and whoever asked: scope and plan of the study, rows in view, rows told before, noise.

A guard sees questions and vectors; it knows no algorithm, and what it does not understand it refuses.
May import: federation.programs, federation.protocol, federation.sums, privacy and below.
"""
