"""Writes that appear at once or not at all: staged, committed, marked."""
