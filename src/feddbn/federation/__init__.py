"""Questions, the programs that ask and answer them, and what guards an answer, around one verb: sum.

No I/O, no clock, no sockets: the same lines run in a simulation, at a deployed site and at its server.
May import: privacy and below.
"""
