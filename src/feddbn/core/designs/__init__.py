"""From recordings to the columns of a design, and their rows."""
