"""The paper's tables and figures: grids of cells that are run, recorded and resumed, and the pages made of them.

Nothing but the command line, the report and benchmarks imports it.
May import: methods and below.
"""
