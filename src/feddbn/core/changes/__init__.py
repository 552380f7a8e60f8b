"""Networks that change: where time is cut, and which edges differ between the parts."""
