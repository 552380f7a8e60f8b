"""The version, in the one place that everything else reads."""

__version__ = "0.3.0.dev0"
