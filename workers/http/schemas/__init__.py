"""The registry of schemas over HTTP."""
