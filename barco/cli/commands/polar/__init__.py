"""`barco polar`: a door for PolarStreams' clients, beside a broker."""

import argparse
import asyncio
import importlib
import importlib.util
import ipaddress
import sys
from typing import Any

from barco.cli.shared import talk
from barco.client.wire.discovery import join_endpoint

DESCRIPTION = """\
Let PolarStreams' clients in, as they are: their binary frames, their discovery, and HTTP/2 without
TLS for consumers, each of which is the connection that it has registered on. Runs beside a broker
and asks that one. In a cluster each broker has such a door, with the same ports.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco polar                                       clients say polar://127.0.0.1:9240
  barco polar --endpoint 10.0.0.7:9250 --bind 10.0.0.7 --insecure-allow-open
  barco polar --token-file /etc/barco/polar.token   with what that user may do

Whoever reaches its ports may do what its user may: PolarStreams' clients show no token, and speak
no TLS. It listens on 127.0.0.1; another address needs --insecure-allow-open as well, else it ends
with 78. docs/polar.md says what is as with PolarStreams, and what is not. Needs the library h2:
pip install 'barco[polar]'.

{talk.EXIT_CODES}"""

PORT = 9240


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "polar", help="let PolarStreams' clients in, as they are",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--bind", metavar="ADDRESS", default="127.0.0.1",
                        help="listen there (default: %(default)s)")  # fmt: skip
    parser.add_argument("--insecure-allow-open", action="store_true",
                        help="also on an address that others reach")  # fmt: skip
    parser.add_argument("--port", metavar="N", type=talk.ordinal, default=PORT,
                        help="for discovery; N + 2 is for consumers, N + 4 for frames; 0: free "
                        "ones (default: %(default)s)")  # fmt: skip
    parser.add_argument("--new-groups", choices=("earliest", "latest"), default="earliest",
                        help="where a new group begins whose consumer does not say it "
                        "(default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the ports as JSON")


def run(args: argparse.Namespace) -> int:
    """Serve until it is ended."""
    if not (_is_loopback(args.bind) or args.insecure_allow_open):
        return talk.fail(
            f"whoever reaches {args.bind} could do there what the door's user may: 127.0.0.1, or "
            "--insecure-allow-open if something else keeps strangers away", 78,
        )  # fmt: skip
    if importlib.util.find_spec("h2") is None:
        return talk.fail("HTTP/2 needs the library h2: pip install 'barco[polar]'")
    serve = importlib.import_module(f"{__name__}.door").serve
    asyncio.run(serve(args, lambda ports: _tell(args, ports)))
    return 0


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _tell(args: argparse.Namespace, ports: dict[str, int]) -> None:
    if args.json:
        talk.print_json(ports)
    else:
        told = ", ".join(f"{name} {port}" for name, port in ports.items())
        print(f"polar://{join_endpoint(args.bind, ports['discovery'])} ({told})")
    sys.stdout.flush()
