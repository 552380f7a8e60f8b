"""Where dense arithmetic is done: numpy, or torch on a GPU when that is asked for and pays.

A device is an argument, never a global.
May import: core.arrays, errors, settings.
"""
