"""A data directory with thousands of old generations, as that many starts would have left it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import barco_faces
from msgspec.structs import replace

from barco import _native
from barco.limits import GROUP_HEADER_BYTES
from barco.model.generation import Ballot, Generation, Gid, Kind, Parent, Successor
from barco.model.token import TOKEN_MIN
from barco.protocol.replication import (
    AcceptedRecord,
    DecidedRecord,
    OpenedRecord,
    PromisedRecord,
)
from barco.protocol.replication_codec import to_map
from barco.types import Epoch
from barco.workers.replication.persisting import read_journal
from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.scan import GEN_START, SegmentSummary, parse_header
from barco.workers.storage.index.sidecar import IndexBuilder, write_sidecar

PAGE = 4096
TOKEN = -(2**63)
"""Where the only range of a single broker begins."""

SESSION = 1
TOPIC, SLICE = "old", 0
SLICES = 8
"""Of a token range, as a configuration says that says nothing."""

EVENTS = 4
"""Of each generation."""

FIRST_US = 1_700_000_000_000_000


def _group(uuid: bytes, epoch: int, gseq: int, prev_crc: int, body: bytes) -> tuple[bytes, int]:
    """A group's bytes and the checksum of its header: the first holds a state, others a chunk."""
    size = -(-(GROUP_HEADER_BYTES + len(body)) // PAGE) * PAGE
    opens = gseq == 1
    head = barco_faces.group_header_pack(
        GEN_START if opens else 0, uuid, TOKEN, epoch, SESSION, gseq, prev_crc,
        _native.crc32c(body), gseq - 1, gseq - 1, FIRST_US + epoch, len(body), int(not opens), size,
        *(0, 0, 0),
    )  # fmt: skip
    header = parse_header(head)
    assert header is not None
    return (head + body).ljust(size, b"\0"), header.header_crc


def _groups(uuid: bytes, epoch: int, base: int) -> Iterator[bytes]:
    start, crc = _group(uuid, epoch, 1, 0, _native.ShardState(0, SLICES).snapshot())
    yield start
    values = [f'{{"generation":{epoch},"event":{n}}}'.encode() for n in range(EVENTS)]
    batch = _native.batch_encode(values, None, {"timestamp": [FIRST_US + epoch] * EVENTS}, False)
    chunk = barco_faces.chunk_of_batch(batch, TOPIC, SLICE, epoch, base, True)
    yield _group(uuid, epoch, 2, crc, chunk)[0]


def _write(shard: Path, uuid: bytes, epoch: int, base: int) -> tuple[int, int]:
    """One sealed generation: its directory, its segment and that one's index; (tail, bytes)."""
    path = layout.segment_path(shard, epoch, 0)
    path.parent.mkdir(mode=0o700)
    index = IndexBuilder()
    groups = list(_groups(uuid, epoch, base))
    at = 0
    for group in groups:
        header = parse_header(group)
        assert header is not None
        index.add(header, memoryview(group), at)
        at += len(group)
    path.write_bytes(b"".join(groups))
    last = parse_header(groups[-1])
    assert last is not None
    wall = FIRST_US + epoch
    summary = SegmentSummary(0, 1, len(groups), 0, last.header_crc, at, wall, wall)
    write_sidecar(path, index.body(), epoch, summary)
    return len(groups), at


def _votes(before: Generation, tail: int) -> tuple[Generation, list[tuple[int, dict[str, Any]]]]:
    """The generation that a start opened, and what its machine wrote down until then."""
    gid, epoch = before.gid, Epoch(before.gid.epoch + 1)
    ballot = Ballot(1, before.leader.ordinal, SESSION)
    parents = (Parent(gid, tail),)
    child = replace(before, gid=Gid(gid.token, epoch), session=SESSION, parents=parents)
    value = Successor(tail, Kind.RELEAD, (child,))
    votes = PromisedRecord(gid, ballot), AcceptedRecord(gid, ballot, value)
    records = [(gid.epoch, to_map(each)) for each in (*votes, DecidedRecord(gid, value))]
    return child, [*records, (epoch, to_map(OpenedRecord(child)))]


def add_old_generations(data_dir: Path, count: int) -> None:
    """Adds sealed generations to the directory of a single broker with one worker, at rest."""
    identity = json.loads((data_dir / "broker.json").read_text())
    uuid = bytes.fromhex(identity["cluster_uuid"])
    shard = layout.range_path(data_dir, TOKEN_MIN)
    lineage = Lineage.load(shard)
    opened = [each for each in read_journal(lineage.journal) if isinstance(each, OpenedRecord)]
    generation = max((each.generation for each in opened), key=lambda each: each.gid.epoch)
    tail, records, ends = 0, [], []
    for _ in range(count):
        generation, votes = _votes(generation, tail)
        records += votes
        # Its offsets begin anew, as the empty state at its beginning says: nobody reads them.
        tail, end_bytes = _write(shard, uuid, generation.gid.epoch, 0)
        ends.append((generation.gid.epoch, tail, 0, end_bytes))
    lineage.add_journal(records)
    for end in ends:
        lineage.sealed(*end)
    os.sync()
