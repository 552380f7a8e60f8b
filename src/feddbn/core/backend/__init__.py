"""Where dense arithmetic is done: numpy, or torch on a GPU when that is asked for and pays."""
