"""Values: no I/O, no clock, no randomness."""
