"""Mathematics on plain arrays: designs, statistics, graphs, solvers and the learners.

numpy and scipy only; it knows no site, no file and no federation.
May import: errors, findings, settings, shown.
"""
