"""Rows to staged batches, and the two steps that make them visible."""
