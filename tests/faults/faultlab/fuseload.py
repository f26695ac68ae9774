"""What tests of brokers on FUSE disks have in common: files that are about to be appended to."""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from barco.workers.storage.files import layout
from faultlab.fusedisk import FuseDisk
from faultlab.wire import Address, call

MET_S = 60.0
EVENT_BYTES = 60_000


def await_that(what: str, holds: Callable[[], bool]) -> float:
    """Polls it; how many seconds that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + MET_S, what
        time.sleep(0.01)
    return time.monotonic() - began


def await_hurt(disk: FuseDisk, rule: int, times: int = 1) -> None:
    """Until a rule has hurt so many requests."""
    await_that("nothing of that kind was asked of the disk", lambda: disk.count(rule) >= times)


def fill(address: Address, shards: Sequence[Path], keys: Sequence[str]) -> None:
    """Events with these keys, until these shards append to files that were spares: from then on
    every sync of what was opened as that is an append's."""
    until = time.monotonic() + MET_S
    for key in itertools.cycle(keys):
        if all(any(shard.glob("gen-*/seg-*.idx")) for shard in shards):
            return
        assert time.monotonic() < until, "no segment is full"
        target = f"/v1/topic/filling/messages?partitionKey={key}"
        assert call(address, "POST", target, os.urandom(EVENT_BYTES)).status == 200


def append_files(shard: str) -> str:
    """Glob of what the core of a shard appends to, after `fill`: files are known by the name that
    they were opened under."""
    return f"*/{shard}/{layout.SPARE_NAME}"
