"""What tests ask of the core beyond barco._native: `barco_faces`, built by `make setup`."""

from collections.abc import Sequence

import barco_faces

from barco import _native


def chunk_encode(
    topic: str,
    slice: int,
    epoch: int,
    base_offset: int,
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    timestamps_us: Sequence[int] | None = None,
    compress: bool = True,
) -> bytes:
    """A stored chunk, as the broker writes it."""
    batch = _native.batch_encode(
        values, keys, None if timestamps_us is None else {"timestamp": timestamps_us}, False
    )
    return barco_faces.chunk_of_batch(batch, topic, slice, epoch, base_offset, compress)
