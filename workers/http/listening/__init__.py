"""Server-sent events: what many listeners hear is read and rendered once."""
