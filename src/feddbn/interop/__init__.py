"""Other packages' algorithms on data that may not be pooled: everything here reads a `feddbn.Summary` (`interop.summary`).

    tigramite       conditional independence for PCMCI, PCMCI+ and LPCMCI      `feddbn.interop.tigramite`
    causal-learn    PC, FCI, GES, GRaSP, BOSS                                  `feddbn.interop.causal_learn`
    pgmpy, DoWhy    learned networks as their graphs                           `feddbn.interop.graphs`

Each module imports its package itself, so only those in use have to be installed.
May import: core, errors, model, settings, shown, words.
"""
