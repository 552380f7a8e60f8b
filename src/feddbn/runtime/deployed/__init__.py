"""What every distributed engine shares: server, site, files."""
