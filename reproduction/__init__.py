"""The paper's tables and figures, and what only they need; `python -m reproduction --help`, and README.md beside this."""
