"""What passes between a server and its sites, and the rules it follows."""
