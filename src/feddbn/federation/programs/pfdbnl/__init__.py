"""PFDBNL as site tasks and a server program, round by round.

A round is `rounds` (who is asked), `questions` (what), `site` (its step) and `core.penalised` (the arithmetic).
May import: federation.programs, federation.protocol, federation.sums, core, errors, settings.
"""
