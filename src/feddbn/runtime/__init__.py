"""Where sums are carried out: in this process, or by a distributed engine."""
