"""What a fit gives: its file, its tables, scores against a known network, what residuals and treated rows say.

It reads fitted estimators and imports none.
May import: federation and below.
"""
