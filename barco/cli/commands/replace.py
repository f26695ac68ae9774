"""`barco replace`: an empty disk takes the place of a lost one."""

import argparse
import os
from typing import Any

from barco.cli.commands.format import format_for, tell
from barco.cli.commands.serve import add_common, settings
from barco.cli.shared.joining import Joining, joining
from barco.cli.shared.known import ask_others, known_disk
from barco.config import Config
from barco.errors import ConfigError, DataDirError
from barco.supervisor import datadir, machine

DESCRIPTION = """\
A broker of a cluster whose disk is lost comes back with an empty one. The empty directory gets a
new identity that says which disk it stands in for; when the broker is started, the two brokers that
hold copies of its shards take it in and send it what it lost. Until then these copies are the only
ones: the lost disk counts as the one loss that the cluster survives.

At least one other broker must answer, to say which disk is lost (or --disk says it). The lost disk
must not come back: its identity is never let in again.

A directory that barco serve has formatted, because no other broker answered, and that the others
then refused, may be used: nobody counts on what is in it. One whose disk was ever a member is left
as it is.
"""

EPILOG = """\
Examples:
  barco replace --config /etc/barco/barco.toml
  barco replace --config b1.toml --disk 0b1f5ef38cbb4f54b3e25ee8e4e9c0a4

Exit codes:
  0    formatted; start the broker with barco serve
  2    wrong usage
  78   the configuration or the directory was refused
  1    anything else
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "replace",
        help="take the place of a lost disk",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_common(parser)
    parser.add_argument(
        "--disk", metavar="UUID", type=_uuid, help="the disk that is lost, if nobody can say"
    )
    parser.add_argument("--json", action="store_true", help="print the identity as JSON")


def _uuid(text: str) -> str:
    """For argparse."""
    if not datadir.is_uuid(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the disk_uuid of a broker.json: 32 hexadecimal digits, lower case"
        )
    return text


def run(args: argparse.Namespace) -> int:
    """Format the directory in place of the lost one."""
    config, path = settings(args)
    config = machine.check_cluster(config)
    if len(config.cluster.brokers) <= 1:
        raise ConfigError("a single broker has no copies elsewhere: pass the --config of a cluster")
    lock = datadir.claim(path)
    try:
        identity = datadir.load(path)
        lost = args.disk or known_disk(config)
        if lost is None:
            raise DataDirError(
                f"no other broker knows broker {config.broker.ordinal}: start one of them, or say"
                " which disk is lost with --disk (barco format is for one that never had any)"
            )
        if identity is not None:
            datadir.clear_stranger(path, identity, lost)
        identity = format_for(config, path, _joining(config, lost), replaces=lost)
    finally:
        os.close(lock)
    tell(identity, path, args.json)
    return 0


def _joining(config: Config, lost: str) -> Joining | None:
    """What the others say of the ring, if any answers: it may have grown since it was formatted."""
    told = next(ask_others(config), None)
    if told is None:
        return None
    if config.broker.ordinal >= told.ring_size > 1:
        return joining(config, lost=lost)
    return Joining(cluster=told, table=None)
