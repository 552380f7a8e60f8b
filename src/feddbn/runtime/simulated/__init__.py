"""Federations whose sites live in this process: plain, masked, in regions, with noise.

They run the lines that deployed sites run.
May import: runtime.masked, runtime.noisy, core, errors, federation, privacy.
"""
