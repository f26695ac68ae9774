"""The machine of a replica's logs: which of them the core has, and what goes into which."""
