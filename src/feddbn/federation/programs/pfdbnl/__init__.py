"""PFDBNL as site tasks and a server program."""
