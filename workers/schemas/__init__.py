"""The registry of schemas: what it knows, what follows what, and who keeps it."""
