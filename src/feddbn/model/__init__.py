"""The learned network as an object: its numbers, what its variables do given their causes, and what follows from that.

`network` holds the numbers, `mechanisms` what variables do; the other modules compute from these, and `dbn` offers all of it.
It knows no site, no file of data and no method.
May import: data and below.
"""
