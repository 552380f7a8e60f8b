"""Which edges may be there, which are, and how far weights are from having no cycles."""
