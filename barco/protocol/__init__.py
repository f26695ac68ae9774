"""Bytes to values and back: no sockets, no files, no clock."""
