"""Spans of traced requests: whose, what is known of them, and how a collector is told."""
