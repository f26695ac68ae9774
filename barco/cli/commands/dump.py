"""`barco dump`: look into a data directory, whether or not a broker runs on it."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from barco.cli.commands import aside
from barco.errors import DataDirError
from barco.model.ranges import HeldRange
from barco.supervisor import datadir
from barco.workers.storage.files import layout
from barco.workers.storage.files.records import Claim, Home
from barco.workers.storage.stores.inspect import Record, Wishes, inspect_shard

DESCRIPTION = """\
Show what is in a data directory: shards, generations, segments, and on request every group, chunk
and event. Reads the files themselves, needs no broker and changes nothing.

Looks at what a start of the broker looks at: segments that have a valid index are not read. With
--verify every group and every chunk is, and each damaged place is named. A torn tail is no damage:
it is what was being written, and was not acknowledged, when a broker was killed.
"""

EPILOG = """\
Examples:
  barco dump /var/lib/barco                       what is there
  barco dump /var/lib/barco --verify              check every checksum
  barco dump ./barco-data --events --topic logs   the events of one topic, oldest first
  barco dump ./barco-data --hash --json           a content hash of each sealed generation

Exit codes:
  0    nothing is corrupt
  2    wrong usage
  78   this is no data directory, or it cannot be used
  1    corruption was found, or a file cannot be read
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "dump",
        help="look into a data directory",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data_dir", metavar="DATA_DIR", type=Path, help="a broker's data directory")
    parser.add_argument("--shard", metavar="N", type=int, help="only this shard")
    parser.add_argument("--groups", action="store_true", help="list the append groups")
    parser.add_argument("--chunks", action="store_true", help="list the chunks")
    parser.add_argument("--events", action="store_true", help="print the events")
    parser.add_argument("--topic", metavar="TOPIC", help="only chunks and events of this topic")
    parser.add_argument("--verify", action="store_true", help="check everything, not only the ends")
    parser.add_argument(
        "--hash",
        action="store_true",
        help="SHA-256 of each sealed generation's content, the same on every broker that holds it",
    )
    parser.add_argument(
        "--aside",
        action="store_true",
        help="what was set aside instead, as two others went on without it (see barco recover)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(args: argparse.Namespace) -> int:
    """Print what there is; 1 when something is corrupt."""
    identity = load_identity(args.data_dir)
    running = layout.is_locked(args.data_dir)
    wishes = Wishes(args.groups, args.chunks, args.events, args.topic, args.verify, args.hash)
    ranges = held_ranges(args.data_dir, identity, args.shard)
    show = _print_json if args.json else _print_text
    show(
        {
            "type": "broker",
            "path": str(args.data_dir),
            "cluster_uuid": identity.cluster_uuid,
            "disk_uuid": identity.disk_uuid,
            "workers": identity.workers,
            "slices_per_range": identity.slices_per_range,
            "running": running,
        }
    )
    problems = 0
    for held in ranges:
        path = layout.range_path(args.data_dir, held.token)
        uuid = bytes.fromhex(identity.cluster_uuid)
        if args.aside:
            problems += aside.inspect(path, held.number, uuid, wishes, show)[1]
        elif path.is_dir():
            claim = claim_on(args.data_dir, identity, held)
            problems += inspect_shard(path, held.number, uuid, wishes, running, show, claim)
    if problems:
        print(f"barco: {problems} corrupt place(s) in {args.data_dir}", file=sys.stderr)
    return 1 if problems else 0


def load_identity(data_dir: Path) -> datadir.Identity:
    """broker.json of a directory that has to be formatted."""
    identity = datadir.load(data_dir)
    if identity is None:
        raise DataDirError(f"{data_dir} is not a data directory of barco: it has no broker.json")
    return identity


def claim_on(data_dir: Path, identity: datadir.Identity, held: HeldRange) -> Claim:
    """What a range's journal has to say of whose it is."""
    home = Home(identity.disk_uuid, held.token)
    return Claim(home=home, ordinal=identity.member, named=datadir.journals_named(data_dir))


def held_ranges(data_dir: Path, identity: datadir.Identity, wanted: int | None) -> list[HeldRange]:
    """The ranges to look at, each with the process that holds it: of one process, or all."""
    table = datadir.read_table(data_dir, identity)
    if old := datadir.numbered(data_dir):
        raise DataDirError(
            f"{old[0]} is named as an earlier version did: start the broker once with this one"
        )
    if wanted is None:
        return list(table)
    if wanted not in table.numbers:
        known = ", ".join(map(str, table.numbers))
        raise DataDirError(f"there is no shard {wanted}: the directory has {known}")
    return [table.at(wanted)]


def _print_json(record: Record) -> None:
    print(json.dumps(record, ensure_ascii=False))


def _print_text(record: Record) -> None:
    print(_FORMATS[record["type"]](record))


def _broker(r: Record) -> str:
    state = "a broker is running on it" if r["running"] else "no broker is running on it"
    return (
        f"{r['path']}: {r['workers']} worker(s), {r['slices_per_range']} slices, "
        f"cluster {r['cluster_uuid']}; {state}"
    )


def _shard(r: Record) -> str:
    text = f"\nshard {r['shard']}: {r['generations']} generation(s)"
    if r["lineage_stranger"]:
        text += f"; lineage.log {r['lineage_stranger']}"
    if r["lineage_torn_bytes"]:
        text += f"; lineage.log ends in {r['lineage_torn_bytes']} torn bytes"
    if r["lineage_damaged_files"]:
        text += f"; {r['lineage_damaged_files']} of 2 files of its lineage DAMAGED"
        text += ", and records are in neither" if r["lineage_records_lost"] else ""
    return text


def _generation(r: Record) -> str:
    ends = {
        "sealed": "sealed",
        "open": "open, being written",
        "end": "ends cleanly, not sealed yet",
        "torn": f"ends in a torn tail of {r['torn_bytes']:,} bytes, not sealed yet",
        "lost": "CORRUPT",
        "new": "empty",
    }
    parents = ", ".join(f"{epoch} up to group {tail}" for epoch, tail in r["parents"]) or "unknown"
    text = (
        f"  generation {r['epoch']}: {r['tail']:,} group(s) in {r['segments']} segment(s), "
        f"{r['file_bytes']:,} bytes; {ends[r['end']]}; parent {parents}"
    )
    return text + (f"\n    sha256 {r['hash']}" if "hash" in r else "")


def _segment(r: Record) -> str:
    return (
        f"    segment {r['segment']}: groups {r['first_gseq']:,} to {r['last_gseq']:,}, "
        f"{r['bytes']:,} of {r['file_bytes']:,} bytes used, index {r['index']}"
    )


def _group(r: Record) -> str:
    kind = r["flags"] or f"{r['chunks']} chunk(s)"
    return (
        f"    group {r['gseq']:,} at {r['segment']}:{r['offset']:,}, {r['bytes']:,} bytes, {kind}, "
        f"stable up to {r['durable_upto']:,}"
    )


def _chunk(r: Record) -> str:
    return (
        f"      chunk {r['topic']}/{r['slice']} offsets {r['base_offset']:,} to "
        f"{r['base_offset'] + r['events'] - 1:,}, {r['stored_bytes']:,} bytes "
        f"({r['raw_bytes']:,} raw) at {r['segment']}:{r['offset']:,}"
    )


def _event(r: Record) -> str:
    key = "-" if r["key"] is None else r["key"]
    value = "-" if r["value"] is None else r["value"]
    headers = "".join(f" {name}={text}" for name, text in r.get("headers", ()))
    return f"{r['topic']}/{r['slice']} {r['offset']} {r['timestamp_us']} {key} {value}{headers}"


def _corruption(r: Record) -> str:
    return f"    CORRUPT {r['path']} at byte {r['offset']:,}, group {r['gseq']:,}: {r['reason']}"


_FORMATS = {
    "broker": _broker,
    "shard": _shard,
    "generation": _generation,
    "segment": _segment,
    "group": _group,
    "chunk": _chunk,
    "event": _event,
    "corruption": _corruption,
}
