"""Formats of the core a second time, in Python, and what only tests ask of the core.

No product imports it (tests/tidy/test_layers.py): it is there to be held against the C.
"""
