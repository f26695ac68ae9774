"""`barco backup`: a copy of a broker's data directory from which it can be restored."""

import argparse
import resource
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import barco
from barco.cli.commands.backup import image, manifest
from barco.cli.commands.backup.manifest import BackedUp, Manifest
from barco.cli.commands.dump import claim_on, held_ranges, load_identity
from barco.cli.commands.serve import settings
from barco.cli.shared import talk
from barco.errors import DataDirError, NotReadyError
from barco.model.ranges import HeldRange, directory_of
from barco.supervisor import datadir
from barco.supervisor.files.asked import ASKED
from barco.supervisor.files.first_users import NAME as FIRST_USERS
from barco.supervisor.files.restored import is_restored
from barco.types import MiB
from barco.workers.storage.stores.inspect import Record, Wishes, inspect_shard

RATE = 64 * MiB
"""Bytes a second: less than a disk gives, so that the broker has the rest."""

DESCRIPTION = """\
Copy what a broker has on its disk to a new directory, on another disk or another machine's, whether
or not the broker runs: journals, logs, what is staged. The copy is as a crash at that moment would
have left the directory, is looked at as a start of the broker would, and has a list of its files
with their checksums. What was acknowledged before the command began is in it, as far as this broker
had a copy of that; of a cluster take one of each broker.

It is of one version and one moment: there is no log to roll forward with. To put it back, on the
same or another machine, is `barco restore`.
"""

EPILOG = """\
Examples:
  barco backup /mnt/backups/b0-$(date +%F) --config /etc/barco/barco.toml --data-dir /var/lib/barco
  barco backup ./copy --rate 0               as fast as the disks go
  barco restore ./copy --check               reads it again, and compares the checksums

Exit codes:
  0    the backup is whole
  2    wrong usage
  78   no data directory, or the target can not be used
  1    part of what is on the disk is damaged (and is so in the backup), or try again
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "backup",
        help="copy a data directory that may be in use",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="DIR", type=Path, help="a new or empty directory")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the broker's settings")
    parser.add_argument("--data-dir", metavar="DIR", type=Path,
                        help="what to copy (default: as serve has it)")  # fmt: skip
    parser.add_argument("--rate", metavar="BYTES", type=rate, default=RATE,
                        help="bytes a second, at most; 0: no limit (%(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print what was copied as JSON")
    parser.set_defaults(workers=None)


def rate(text: str) -> int:
    """For argparse: bytes a second, or 0."""
    return 0 if text == "0" else talk.count(text)


def run(args: argparse.Namespace) -> int:
    """Copy, and say what."""
    source = settings(args)[1]
    made = take(source, args.target, args.rate)
    if args.json:
        told = {"began": made.began, "files": len(made.files), "bytes": made.size}
        talk.print_json(told | {"damaged": list(made.damaged)})
    else:
        print(
            f"{args.target}: {len(made.files)} files, {talk.size_of(made.size)}, as of {made.began}"
        )
    for words in made.damaged:
        talk.say(f"barco: damaged, here as there: {words}")
    return 1 if made.damaged else 0


def take(source: Path, target: Path, bytes_per_second: int) -> Manifest:
    """A whole backup of a data directory."""
    identity = load_identity(source)
    if is_restored(source):
        raise DataDirError(f"{source} has just been restored, and never started: copy it later")
    began = _now()
    ranges, table = held_ranges(source, identity, None), (source / datadir.PROCESSES).read_bytes()
    _make_target(source, target)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pace, files, damaged = image.Pace(bytes_per_second), list[BackedUp](), list[str]()

    for held in ranges:
        if not (source / directory_of(held.token)).is_dir():
            continue

        def look(shard: Path, held: HeldRange = held) -> list[str]:
            found: list[Record] = []
            claim, uuid = claim_on(source, identity, held), bytes.fromhex(identity.cluster_uuid)
            problems = inspect_shard(shard, held.number, uuid, Wishes(), False, found.append, claim)
            words = [f"{each['path']}: {each['reason']}" for each in found
                     if each["type"] == "corruption"]  # fmt: skip
            return words if words or not problems else [f"{shard.name}: its journal"]

        taken, amiss = image.take_range(source, target, directory_of(held.token), pace, look)
        files += taken
        damaged += amiss
    if (source / datadir.PROCESSES).read_bytes() != table:
        raise NotReadyError(
            "the broker got other ranges meanwhile: copy it again when the ring has its target"
        )
    for name in (ASKED, FIRST_USERS, datadir.PROCESSES, datadir.IDENTITY):
        if (source / name).exists():
            files.append(image.write_file(target, name, (source / name).read_bytes()))
    manifest.sync_directory(target)
    made = Manifest(
        barco=barco.__version__,
        began=began,
        ended=_now(),
        cluster=identity.cluster_uuid,
        disk=identity.disk_uuid,
        ordinal=identity.ordinal,
        ring_size=identity.ring_size,
        damaged=damaged,
        files=files,
    )
    manifest.write(target, made)
    return made


def _make_target(source: Path, target: Path) -> None:
    if target.resolve().is_relative_to(source.resolve()):
        raise DataDirError(f"{target} is in the data directory itself: pass another one")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise DataDirError(f"{target} is not empty: a backup gets a directory of its own")
    except OSError as error:
        raise DataDirError(f"cannot use {target}: {error.strerror}") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
