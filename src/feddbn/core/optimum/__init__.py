"""The best order of the variables for penalised least squares, and how far from it an answer can be."""
