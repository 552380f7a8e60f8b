"""Networks: what variables do given their causes (`nodes`), how they go on (`step`), and what follows from that.

In: numbers or nodes, and rows of one recording. Out: a `DBN` and what can be asked of it; files of it.
Door: `dbn.DBN`, `nodes` (Node, Term, Part), `graph.AncestralGraph`, `summary.Summary`, `forecast.Forecast`,
`trends.fit_trend`, `effects.Effect`. May import: data and below.
"""
