"""What tests ask of the core beyond barco._native: `barco_faces`, built by `make setup`."""

from collections.abc import Sequence

import barco_faces

from barco import _native
from reference.sections import Headers


def chunk_encode(
    topic: str,
    slice: int,
    epoch: int,
    base_offset: int,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps_us: Sequence[int] | None = None,
    compress: bool = True,
    headers: Sequence[Headers] = (),
) -> bytes:
    """A stored chunk, as the broker writes it."""
    numbers = None if timestamps_us is None else {"timestamp": timestamps_us}
    packed = [_native.headers_encode(each) or None for each in headers] if any(headers) else None
    batch = _native.batch_encode(values, keys, numbers, False, packed)
    return barco_faces.chunk_of_batch(batch, topic, slice, epoch, base_offset, compress)
