"""`barco format`: prepare a data directory."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from barco import config as configuration
from barco.cli.commands.serve import add_common, settings
from barco.cli.shared.joining import Joining, joining
from barco.cli.shared.known import known_disk
from barco.config import Config
from barco.errors import DataDirError
from barco.supervisor import datadir, machine
from barco.supervisor.secret import make_secret, read_secret

DESCRIPTION = """\
Prepare an empty directory for a broker: give it an identity, and fix the number of its workers and
slices. `barco serve` does the same at its first start; format is for choosing the shape before,
and for machines where the directory is made by somebody else.

A directory that has been formatted, or has anything else in it, is refused and left as it is. So is
one for a broker that the rest of its cluster knows with another disk: `barco replace` is for that.

A broker that comes to a cluster later (--join) has a configuration whose cluster.brokers lists all,
itself at the end; the others may run on with their shorter list. It asks them how the ring was cut,
and has processes for the ranges that it will lead and follow. Started, it says that it is ready,
and waits until barco scale asks for it.
"""

EPILOG = """\
Examples:
  barco format --data-dir /var/lib/barco --workers 8
  barco format --config /etc/barco/barco.toml --json
  barco format --config /etc/barco/barco.toml --join

Exit codes:
  0    formatted
  2    wrong usage
  78   the configuration or the directory was refused
  1    anything else
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "format",
        help="prepare a data directory",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_common(parser)
    parser.add_argument(
        "--join",
        action="store_true",
        help="for a broker that a cluster is to grow by: the others, which must answer, say how the"
        " ring was cut",
    )
    parser.add_argument("--json", action="store_true", help="print the identity as JSON")


def run(args: argparse.Namespace) -> int:
    """Format the directory and say what it is now."""
    config, path = settings(args)
    config = machine.check_cluster(config)
    if (made := make_secret(config)) is not None:
        sys.stderr.write(f"made {made}: copy it to the other brokers of the cluster, mode 0600\n")
    read_secret(config)
    lock = datadir.claim(path)
    try:
        refuse_formatted(path)
        identity = format_for(config, path, _joining(config, join=args.join))
    finally:
        os.close(lock)
    tell(identity, path, args.json)
    return 0


def refuse_formatted(path: Path) -> None:
    """Before other brokers are asked: a directory that is in use already is left as it is."""
    if datadir.load(path) is not None:
        raise DataDirError(f"{path} is already formatted")


def _joining(config: Config, *, join: bool) -> Joining | None:
    """The cluster that is joined; None for a new one, if nobody knows this broker already."""
    if join:
        return joining(config)
    if (known := known_disk(config)) is not None:
        raise DataDirError(
            f"broker {config.broker.ordinal} of this cluster is known with disk {known}: bring its"
            " data directory back, or run barco replace if it is lost"
        )
    return None


def format_for(
    config: Config, path: Path, joins: Joining | None = None, replaces: str = ""
) -> datadir.Identity:
    """Format for the broker that the configuration describes, which joins a cluster or begins one
    together with the others of the list."""
    cluster = joins.cluster if joins is not None else None
    return datadir.format_data_dir(
        path,
        workers=cluster.workers if cluster else machine.worker_count(config),
        slices_per_range=(cluster or config.cluster).slices_per_range,
        ordinal=config.broker.ordinal,
        cluster_uuid=configuration.cluster_uuid(config),
        ring_size=cluster.ring_size if cluster else machine.new_ring(config),
        replaces=replaces,
        table=joins.table if joins is not None else None,
    )


def tell(identity: datadir.Identity, path: Path, as_json: bool) -> None:
    """Say what the directory is now; and that it is here, if nobody said where."""
    if path == configuration.data_dir_default():
        sys.stderr.write(
            f"nobody said where the data is (--data-dir, broker.data_dir), so it is {path} here:"
            " a service's is /var/lib/barco\n"
        )
    if as_json:
        print(json.dumps(asdict(identity)))
        return
    sys.stdout.write(
        f"{path} is formatted for {identity.workers} worker(s) and"
        f" {identity.slices_per_range} slices, cluster {identity.cluster_uuid}\n"
    )
