"""Studies on Flower."""
