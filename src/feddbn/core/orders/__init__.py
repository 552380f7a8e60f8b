"""Networks searched over orders of the variables."""
