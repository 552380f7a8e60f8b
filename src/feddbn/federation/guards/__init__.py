"""What stands between a site's answers and whoever asked."""
