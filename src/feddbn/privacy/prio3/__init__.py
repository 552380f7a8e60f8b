"""Sums of vectors in shares, each with a proof that it is valid: Prio3 of the IETF's draft-irtf-cfrg-vdaf-18.

`field` has vectors over prime fields, `xof` randomness from seeds, `flp` the proofs, `prio3` shares and
checks, `moments` our circuit.
May import: core, errors.
"""
