"""What a fit gives: its file, its tables, scores against a known network, what residuals and treated rows say."""
