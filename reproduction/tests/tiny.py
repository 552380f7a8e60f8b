"""The smallest experiment that has everything: two points, two methods, three seeds."""

TINY = """
name = "tiny"
title = "Tiny"
kind = "federation"
figures = ["Figure 0"]
what = "Three variables."
commentary = "Nothing to add."
axis = "n_sites"
axis_label = "K"
layout = "lines"
protocols = ["paper-text", "strong"]
points = [
  { d = 3, n_sites = 2, n_samples = 40, mean_degree = 1.0 },
  { d = 3, n_sites = 4, n_samples = 40, mean_degree = 1.0 },
]
methods = ["alldata", "local"]
seeds = 3
columns = [
  { label = "Alldata", method = "alldata", pick = 0.05, plot = true },
  { label = "Alldata (tuned)", method = "alldata", pick = "best" },
  { label = "Ave", method = "local", variant = "Ave", plot = true },
  { label = "LocalOnly", method = "local", variant = "LocalOnly" },
]

[quick]
points = [0]
seeds = 1

[[quoted]]
measure = "W.tpr"
at = [2, 4]
values = [0.7, 0.6]
column = "Ave"
ours = "Alldata"
source = "Table 0"
reason = "a reason"

[[claims]]
text = "Alldata beats Ave."
measure = "W.shd_paper"
column = "Alldata"
than = ["Ave"]
"""
