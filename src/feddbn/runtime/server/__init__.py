"""The server of a study: coordinator, masked sums, collections, results."""
