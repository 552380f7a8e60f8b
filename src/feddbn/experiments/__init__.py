"""The paper's tables and figures: grids of cells that are run, recorded and resumed, and the pages made of them.

May import `feddbn.methods` and all below it. Nothing but the command line, the report and benchmarks imports it.
"""
