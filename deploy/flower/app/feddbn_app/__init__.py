"""A study of feddbn as an app of Flower."""
