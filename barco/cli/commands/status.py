"""`barco status`: is the broker ready, and who owns what."""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

from barco.cli.shared import talk
from barco.cli.shared.asked import Brokers, Reports
from barco.cli.shared.leaving import words_of
from barco.cli.shared.ring import draw
from barco.model.health import health_lines, health_of

DESCRIPTION = """\
Say in words how the brokers are: whether all slices can be written and to how many disks, and what
is wrong. All brokers are asked that the first one names. Below that what one broker is like and who
leads which slices.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco status
  barco status --json | jq .topology.shards
  until barco status --ready >/dev/null 2>&1; do sleep 1; done
  until curl -fs 'localhost:9250/ready?insync'; do sleep 1; done
      before the next broker of a cluster is stopped

Exit codes:
  0    ready, and nothing is wrong
  2    wrong usage
  1    the broker that was asked is not ready, or no broker answers
  3    ready, but something is wrong, here or elsewhere in the cluster: it is said first, after a ✗
       (not with --ready)
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "status", help="is the broker ready", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds, default=5.0,
                        help="wait so long for an answer (default: %(default)g)")  # fmt: skip
    parser.add_argument("--ready", action="store_true",
                        help="end with 0 if it is ready, whatever else is wrong")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the broker's answers as JSON")


def run(args: argparse.Namespace) -> int:
    """Ask all, print."""
    asked = asyncio.run(_ask(args))
    status, topology = asked.status, asked.topology
    health = health_of(asked.said, topology)
    ready = status.get("status") == "ready"
    code = (0 if health.well or args.ready else 3) if ready else 1
    if args.json:
        told = {"headline": health.headline, "wrong": health.wrong, "notes": health.notes}
        talk.print_json({"status": status, "topology": topology, "health": told})
        return code
    for line in health_lines(health, unicode=talk.speaks_unicode()):
        print(line)
    print()
    print(f"status   {status.get('status')}")
    if "peers" in status:
        print(f"copies   {_copies(status)}")
    if leaves := status.get("leaves"):
        print(f"leaves   {words_of(leaves)}")
    print(f"version  {status.get('version')}")
    why = f" ({status['engineReason']})" if status.get("engineReason") else ""
    print(f"engine   {status.get('engine')}{why}")
    if tls := status.get("tls"):
        print(f"tls      certificate until {tls['expires']}{_kernel(tls)}")
    if between := status.get("mutualTls"):
        lax = "" if between["refusesPlain"] else ", and those without are let in"
        until = f"this one's certificate until {between['expires']}"
        print(f"brokers  TLS among themselves, {until}{lax}")
    if topology is not None and topology["ringSize"] > 1:
        _print_cluster(topology)
    elif topology is not None:
        print()
        talk.print_table(
            ("worker", "endpoint", "slices", "epoch", "up"), map(_shard, topology["shards"])
        )
    return code


async def _ask(args: argparse.Namespace) -> Reports:
    brokers = Brokers(talk.access(args), args.timeout)
    try:
        return await brokers.ask()
    finally:
        await brokers.close()


def _kernel(tls: dict[str, Any]) -> str:
    return ", the kernel seals large answers" if tls.get("kernel") else ""


def _copies(status: Mapping[str, Any]) -> str:
    """Whether everything that the broker holds is where it should be, in words."""
    if degraded := status.get("degraded"):
        return f"degraded: {'; '.join(map(str, degraded))}"
    if status.get("waits"):
        return "none: the broker has joined, and waits until barco scale asks for it"
    return "in sync" if status.get("inSync") else "not in sync yet"


def _print_cluster(topology: Mapping[str, Any]) -> None:
    print()
    print(draw(topology, colour=talk.colours()))
    print()
    brokers = [
        (broker["ordinal"], broker["name"], broker.get("state", ""), broker.get("version") or "")
        for broker in topology["brokers"]
    ]
    talk.print_table(("broker", "address", "state", "version"), brokers)
    print()
    shards = [
        (
            shard.get("shard", ""),
            "-".join(map(str, shard["slices"])),
            "nobody" if shard["ordinal"] is None or not shard["up"] else shard["ordinal"],
            shard["endpoint"],
            " ".join(str(member[0]) for member in shard.get("members", [])),
            shard.get("version"),
        )
        for shard in topology["shards"]
    ]
    talk.print_table(("shard", "slices", "leader", "endpoint", "members", "epoch"), shards)


def _shard(shard: dict[str, Any]) -> tuple[object, ...]:
    first, last = shard["slices"]
    up = "yes" if shard.get("up") else "no"
    return (shard["worker"], shard["endpoint"], f"{first}-{last}", shard.get("version"), up)
