"""Federations whose sites live in this process."""
