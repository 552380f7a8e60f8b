"""FDBNL: the server's half, the site's half, schedules."""
