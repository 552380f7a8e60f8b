"""Networks searched over orders of the variables: `OrderLearner`, from a Gram matrix to a network.

Parent sets, averages over orders, directions by the shape of noise, hidden causes in place of edges.
May import: core.arrays, core.designs, core.constraints, core.statistics, findings.
"""
