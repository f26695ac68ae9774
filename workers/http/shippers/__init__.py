"""Endpoints at which shippers of logs speak their own protocols: each POST is one produce."""
