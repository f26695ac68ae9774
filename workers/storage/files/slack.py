"""Room that a log does not need any more, given back once it has ended.

A segment is made in its full size before anything is appended. When its generation ends, whatever
follows the last group are zeros for ever: without this each fail-over would keep a segment at each
member. Only zeros are ever cut off: groups behind the agreed tail stay as they are.
"""

import os
from pathlib import Path

from barco.limits import PAGE_BYTES
from barco.types import MiB
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import explain
from barco.workers.storage.files.records import Generation
from barco.workers.storage.files.trash import discard

_WINDOW_BYTES = 1 * MiB
_ZEROS = bytes(_WINDOW_BYTES)


def cut(path: Path, used_bytes: int) -> None:
    """Everything behind `used_bytes` goes, which must be zeros; a file is never made longer."""
    size = -(-used_bytes // PAGE_BYTES) * PAGE_BYTES
    try:
        if path.stat().st_size > size:
            os.truncate(path, size)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, path, "cut the unused end of") from error


async def give_back(shard: Path, generation: Generation, bulk: BulkIo) -> list[int]:
    """Cuts the segments of a sealed generation from where it ends on; their indexes.

    For a start: the process may have ended between the end of a generation and `cut`.
    """
    cut_ones = []
    for index in layout.segment_indexes(shard, generation.epoch):
        if index < generation.end_segment:
            continue
        end = generation.end_bytes if index == generation.end_segment else 0
        path = layout.segment_path(shard, generation.epoch, index)
        try:
            size = path.stat().st_size
            used = await _used(path, end, size, bulk)
        except FileNotFoundError:
            continue  # Retention was faster.
        except OSError as error:
            raise explain(error, path, "read") from error
        if used == 0:
            await bulk.run(discard, shard, path)
        elif used < size:
            await bulk.run(cut, path, used)
            cut_ones.append(index)
    return cut_ones


async def _used(path: Path, end: int, size: int, bulk: BulkIo) -> int:
    """Where the zeros at the end of a file begin: on a page, at `end` or behind it."""
    end = -(-end // PAGE_BYTES) * PAGE_BYTES
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        while size > end:
            start = max(end, size - _WINDOW_BYTES)
            window = await bulk.read(fd, start, -(-(size - start) // PAGE_BYTES) * PAGE_BYTES)
            with memoryview(window) as view:
                for at in range((len(view) - 1) // PAGE_BYTES * PAGE_BYTES, -1, -PAGE_BYTES):
                    page = view[at : at + PAGE_BYTES]
                    if page != _ZEROS[: len(page)]:
                        return start + at + PAGE_BYTES
            size = start
        return size
    finally:
        os.close(fd)
