"""Committed chunks and groups from the disk, verified."""
