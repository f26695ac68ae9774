"""Produces of topics whose values are checked against their schemas (docs/schemas.md)."""
