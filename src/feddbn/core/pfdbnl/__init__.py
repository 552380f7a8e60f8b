"""PFDBNL: the server's half and the site's half."""
