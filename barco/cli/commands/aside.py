"""What a broker has set aside, because two others went on without it: to be listed and exported."""

import base64
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import structs

from barco.cli.shared.talk import print_json
from barco.errors import DataDirError
from barco.model.ranges import HeldRange
from barco.supervisor import datadir
from barco.workers.storage.files import layout
from barco.workers.storage.files.aside import Aside, found
from barco.workers.storage.stores.inspect import Emit, Record, Wishes, inspect_shard

FILES_MAX = 4096
"""Topics that are exported."""


def wishes_for(aside: Aside, wishes: Wishes) -> Wishes:
    """Only of what is nowhere else are groups, chunks and events shown."""
    return structs.replace(wishes, beyond={e: aside.beyond(e) for e in aside.epochs})


def inspect(
    shard: Path, number: int, cluster_uuid: bytes, wishes: Wishes, emit: Emit
) -> tuple[int, int]:
    """Emits what is in each set of a shard; how many sets, and how many places are corrupt."""
    problems = 0
    asides = found(shard)
    for aside in asides:
        wanted = wishes_for(aside, wishes)
        problems += inspect_shard(aside.path, number, cluster_uuid, wanted, False, emit)
    return len(asides), problems


def tell(
    data_dir: Path, identity: datadir.Identity, ranges: Sequence[HeldRange], as_json: bool
) -> int:
    """Says what there is, by topic; how many sets there are."""
    uuid, sets = bytes.fromhex(identity.cluster_uuid), 0
    for held in ranges:
        number = held.number
        for aside in found(layout.range_path(data_dir, held.token)):
            events: Counter[str] = Counter()

            def count(record: Record, events: Counter[str] = events) -> None:
                if record["type"] == "chunk":
                    events[record["topic"]] += record["events"]

            inspect_shard(
                aside.path, number, uuid, wishes_for(aside, Wishes(chunks=True)), False, count
            )
            sets += 1
            if as_json:
                known = {"shard": number, "set_aside": str(aside.path), "epoch": aside.epoch}
                print_json(known | {"after_group": aside.tail, "events": dict(events)})
                continue
            listed = ", ".join(f"{n:,} of {topic}" for topic, n in sorted(events.items()))
            print(
                f"shard {number}: set aside in {aside.path}: what came after group"
                f" {aside.tail:,} of epoch {aside.epoch} here and nowhere else: {listed or 'no'}"
                " events"
            )
    return sets


def export(
    data_dir: Path, identity: datadir.Identity, ranges: Sequence[HeldRange], target: Path
) -> int:
    """Writes the events of all sets, a file for each topic; 1 if something can not be read."""
    try:
        target.mkdir(parents=True)
    except OSError as error:
        raise DataDirError(f"cannot make {target}: {error.strerror}") from None
    files: dict[str, BinaryIO] = {}
    events: Counter[str] = Counter()

    def write(record: Record) -> None:
        topic = record.get("topic", "")
        if record["type"] != "event" or topic.startswith("__"):
            return
        if topic not in files:
            if len(files) == FILES_MAX:
                raise DataDirError(f"{data_dir} has set aside more than {FILES_MAX} topics")
            files[topic] = (target / f"{topic}.ndjson").open("xb")
        files[topic].write(line_of(record))
        events[topic] += 1

    problems = 0
    try:
        for held in ranges:
            uuid = bytes.fromhex(identity.cluster_uuid)
            wishes = Wishes(events=True, raw=True)
            shard = layout.range_path(data_dir, held.token)
            problems += inspect(shard, held.number, uuid, wishes, write)[1]
    except OSError as error:
        raise DataDirError(f"cannot write to {target}: {error.strerror}") from None
    finally:
        for file in files.values():
            file.close()
    for topic, number_of in sorted(events.items()):
        print(f"{target / topic}.ndjson: {number_of:,} events")
    if not events:
        print("no events are set aside")
    return 1 if problems else 0


def line_of(record: Record) -> bytes:
    """An event as a JSON object on a line. What is not UTF-8 is in base64, under another name."""
    line: dict[str, Any] = {
        name: record[name] for name in ("slice", "epoch", "offset", "timestamp_us")
    }
    for name in ("key", "value"):
        data: bytes | None = record[name]
        try:
            line[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            assert data is not None
            line[name + "_base64"] = base64.b64encode(data).decode()
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"
