"""Studies on platforms that others run: each module carries the bytes of `feddbn.engine` on one of them.

May import: engine and below.
"""
