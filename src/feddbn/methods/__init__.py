"""Estimators with scikit-learn conventions: settings, a fit on any federation, and what they say about it.

`base` reads data, opens a federation and checks settings; each other module is one method.
May import: results and below.
"""
