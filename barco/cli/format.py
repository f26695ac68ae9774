"""`barco format`: prepare a data directory."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import Any

from barco import config as configuration
from barco.cli.serve import add_common, settings
from barco.supervisor import datadir, machine

DESCRIPTION = """\
Prepare an empty directory for a broker: give it an identity, and fix the number of its workers and
slices. `barco serve` does the same at its first start; format is for choosing the shape before,
and for machines where the directory is made by somebody else.

A directory that has been formatted, or has anything else in it, is refused and left as it is.
"""

EPILOG = """\
Examples:
  barco format --data-dir /var/lib/barco --workers 8
  barco format --config /etc/barco/barco.toml --json

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
    parser.add_argument("--json", action="store_true", help="print the identity as JSON")


def run(args: argparse.Namespace) -> int:
    """Format the directory and say what it is now."""
    config, path = settings(args)
    config = machine.check_cluster(config)
    lock = datadir.claim(path)
    try:
        identity = datadir.format_data_dir(
            path,
            workers=machine.worker_count(config),
            slices_per_range=config.cluster.slices_per_range,
            ordinal=config.broker.ordinal,
            cluster_uuid=configuration.cluster_uuid(config),
            ring_size=max(1, len(config.cluster.brokers)),
        )
    finally:
        os.close(lock)
    if args.json:
        print(json.dumps(asdict(identity)))
    else:
        sys.stdout.write(
            f"{path} is formatted for {identity.workers} worker(s) and"
            f" {identity.slices_per_range} slices, cluster {identity.cluster_uuid}\n"
        )
    return 0
