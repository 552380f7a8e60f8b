"""The learned network as an object."""
