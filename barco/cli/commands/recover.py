"""`barco recover`: give up what is unreadable or lost, on the operator's word only."""

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from barco.cli.commands import aside, unclean
from barco.cli.commands.dump import claim_on, held_ranges, load_identity
from barco.errors import DataDirError
from barco.supervisor.files.lock import open_lock
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import open_bulk
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Claim
from barco.workers.storage.stores.inspect import Record, Wishes, inspect_shard, range_token
from barco.workers.storage.stores.recovery import RecoveryReport, recover_accepting_loss

DESCRIPTION = """\
A shard whose newest log is damaged where it was known to be stable does not start: what is behind
the damage was acknowledged, and barco never gives up acknowledged events by itself. Restoring the
file is the better way. Where that is not possible, this command gives up the events of the shard
from the damaged group on, and records it in lineage.log. The bytes stay in their files.

A broker of a cluster repairs a damaged shard from the two others by itself. What it can not do
alone is to go on when both of them have lost their disks: the shards that the three shared stay
without a leader, because one copy is no majority. Only when the lost disks do not come back (barco
replace has formatted others in their place), --disk tells this broker so: it then ends each such
shard where its own copy ends, and the three go on from there. What only the lost disks had is gone.

A broker that comes back to two others who go on without events that it has acknowledged, because a
data directory was put back from an old copy, gives way to them: two are the majority. What only it
held is set aside in its data directory. This command lists it, and --export writes the events to a
directory, whether or not a broker runs: TOPIC.ndjson, an object with key and value a line. When
they are where you want them, remove the directory that it names.

Without --accept-data-loss it only says what would be lost. The broker must be stopped.
"""

EPILOG = """\
Examples:
  barco recover /var/lib/barco                       what would be lost
  barco recover /var/lib/barco --accept-data-loss    give it up
  barco recover /var/lib/barco --export lost        events that were set aside
  barco recover /var/lib/barco --disk 1=0b1f5ef38cbb4f54b3e25ee8e4e9c0a4 \\
      --disk 2=9d3f10e0b5d34a3d8d2b7a6a3e7d5c21      brokers 1 and 2 have these disks now

Exit codes:
  0    nothing is damaged, or the loss was accepted and recorded
  2    wrong usage
  78   this is no data directory, or it cannot be used
  1    something is damaged and nothing was changed, or a broker is running
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "recover",
        help="give up what is unreadable or lost",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data_dir", metavar="DATA_DIR", type=Path, help="a broker's data directory")
    parser.add_argument("--shard", metavar="N", type=int, help="only this shard")
    parser.add_argument(
        "--accept-data-loss", action="store_true", help="do it: acknowledged events are given up"
    )
    parser.add_argument(
        "--disk",
        metavar="ORDINAL=UUID",
        type=unclean.disk,
        action="append",
        default=[],
        help="in a cluster: the disk that stands in for the lost one of another broker, as"
        " barco replace said it; once for each",
    )
    parser.add_argument(
        "--export", metavar="DIR", type=Path, help="write what was set aside to this new directory"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each shard")


def run(args: argparse.Namespace) -> int:
    """Look at each shard, and give up what has to be."""
    identity = load_identity(args.data_dir)
    ranges = held_ranges(args.data_dir, identity, args.shard)
    if args.export is not None:
        return aside.export(args.data_dir, identity, ranges, args.export)
    aside.tell(args.data_dir, identity, ranges, args.json)
    if identity.ring_size > 1:
        return unclean.run(args, identity, ranges)
    if args.disk:
        raise DataDirError(f"{args.data_dir} belongs to a single broker: there is no --disk")
    uuid = bytes.fromhex(identity.cluster_uuid)
    lock = open_lock(args.data_dir)
    try:
        damaged = 0
        for held in ranges:
            shard, number = layout.range_path(args.data_dir, held.token), held.number
            if not shard.is_dir():
                continue
            claim = claim_on(args.data_dir, identity, held)
            Lineage.load(shard, claim, repair=False)  # Another disk's is not to be looked into.
            problems = _problems(shard, number, uuid)
            report = None
            if problems and args.accept_data_loss:
                report = asyncio.run(_accept(shard, claim, uuid))
            elif problems:
                damaged += 1
            _tell(number, problems, report, args.json)
        return 1 if damaged else 0
    finally:
        os.close(lock)


def _problems(shard: Path, number: int, uuid: bytes) -> list[Record]:
    """Corruption that keeps the shard from starting: in its newest generation with anything in."""
    found: list[Record] = []
    inspect_shard(shard, number, uuid, Wishes(), False, found.append)
    damaged = {r["epoch"] for r in found if r["type"] == "corruption"}
    used = {r["epoch"] for r in found if r["type"] == "generation" and r["tail"]}
    newest = max(damaged | used, default=0)
    return [r for r in found if r["type"] == "corruption" and r["epoch"] == newest]


async def _accept(shard: Path, claim: Claim, uuid: bytes) -> RecoveryReport:
    bulk = open_bulk("threads")
    try:
        return await recover_accepting_loss(
            shard, claim, cluster_uuid=uuid, token=range_token(shard), bulk=bulk
        )
    finally:
        bulk.close()


def _tell(
    number: int, problems: list[Record], report: RecoveryReport | None, as_json: bool
) -> None:
    lost = report.lost if report is not None else None
    if as_json:
        print(json.dumps({"shard": number, "damaged": problems, "lost_groups": lost}))
    elif not problems:
        print(f"shard {number}: nothing is damaged that a start needs")
    else:
        for r in problems:
            print(f"shard {number}: {r['path']} at byte {r['offset']:,}: {r['reason']}")
        if lost is not None:
            print(
                f"shard {number}: groups {lost[0]:,} to at least {lost[1]:,} are given up, and "
                "recorded in lineage.log; the shard will start"
            )
        else:
            print(f"shard {number}: nothing was changed; --accept-data-loss gives them up")
