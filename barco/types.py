"""The vocabulary in types: numbers that must not be mixed up have names of their own."""

from typing import NewType

Token = NewType("Token", int)
"""A point on the ring: a signed 64-bit integer."""

Offset = NewType("Offset", int)
"""The position of an event in its (topic, slice), from 0, without gaps."""

Epoch = NewType("Epoch", int)
"""The number of a generation, growing within a token range."""

Ordinal = NewType("Ordinal", int)
"""A broker's stable number in the cluster."""

SliceIndex = NewType("SliceIndex", int)
"""The number of a slice within its token range, from 0."""

Instant = NewType("Instant", float)
"""Seconds on the monotonic clock: what the machines are given as `now`."""

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
