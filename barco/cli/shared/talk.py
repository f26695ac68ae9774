"""What the commands that talk to a broker have in common."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from barco.cli.shared.shown import VARIABLE, token_in
from barco.client.base.names import check_topic
from barco.client.wire.access import HTTPS, Access
from barco.config import ca_default, certificate_default, endpoint_default
from barco.errors import ConfigError, OperatorError

JAVA_MIN = 17

ENDPOINT_HELP = """\
Brokers:
  --endpoint names any broker's HOST:PORT, or several with commas; the others are found from there.
  Without it $BARCO_ENDPOINT counts, and else 127.0.0.1:9250. With TLS write https://HOST:PORT, and
  --ca FILE names whom to trust, and --certificate FILE is the client's own where they ask for one.
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

EXIT_CODES = """\
Exit codes:
  0    success
  2    wrong usage
  1    anything else: no broker answers, the broker refused, an event was not acknowledged
"""


def command(
    subparsers: Any, name: str, *, help: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    """The parser of a command, with the option that says where the brokers are."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_endpoint(parser)
    return parser


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    """--endpoint."""
    parser.add_argument(
        "--endpoint",
        metavar="HOST:PORT",
        type=endpoint,
        default=endpoint_default(),
        help="a broker to ask (default: $BARCO_ENDPOINT, else %(default)s)",
    )
    parser.set_defaults(seal=seal)
    parser.add_argument(
        "--ca",
        metavar="FILE",
        default=ca_default(),
        help="whom to trust at https://HOST:PORT, in PEM (default: $BARCO_CA, else the system's)",
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        default=certificate_default(),
        help="the client's own, where brokers ask for one, in PEM; its key is in it, or beside it"
        " with .key at the end (default: $BARCO_CERTIFICATE)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        dest="token",
        type=token_file,
        default=os.environ.get(VARIABLE, ""),
        help="a file with a user's token, where brokers ask for one (default: $BARCO_TOKEN_FILE)",
    )


def token_file(path: str) -> str:
    """For argparse: the token that a file has."""
    try:
        return token_in(path)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(error.detail) from None


def access(args: argparse.Namespace) -> Access:
    """What --endpoint and --token-file say."""
    return Access.of(args.endpoint, args.token)


def spark_options(args: argparse.Namespace) -> dict[str, str]:
    """What --endpoint, --ca, --certificate and --token-file say, as Spark is told it."""
    sealed = HTTPS in str(args.endpoint)
    given = {
        "endpoints": str(args.endpoint),
        "token": args.token,
        "ca": str(args.ca) if sealed else "",
        "certificate": str(args.certificate) if sealed else "",
    }
    return {name: value for name, value in given.items() if value}


def seal(args: argparse.Namespace) -> None:
    """Where endpoints are https:// what a command gets as `endpoint` is an access with TLS."""
    if HTTPS not in str(getattr(args, "endpoint", "")):
        return
    given = " or ".join(
        f"--{name} {value}" for name in ("ca", "certificate") if (value := getattr(args, name))
    )
    try:
        args.endpoint = Access.of(args.endpoint, ca=args.ca, certificate=args.certificate)
        assert args.endpoint.tls is not None, "they are https://"
        args.endpoint.tls.context()
    except (OSError, ValueError) as error:
        raise OperatorError(f"{given}: cannot be used: {error}") from None


def endpoint(text: str) -> str:
    """For argparse: one or more endpoints."""
    return _checked(lambda: Access.of(text) and text, text)


def topic(text: str) -> str:
    """For argparse: a topic's name."""
    return _checked(lambda: check_topic(text), text)


def count(text: str) -> int:
    """For argparse: a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def ordinal(text: str) -> int:
    """For argparse: a broker's ordinal, from 0."""
    return 0 if text == "0" else count(text)


def seconds(text: str) -> float:
    """For argparse: a time span."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def pause(least: float) -> Callable[[str], float]:
    """For argparse: a time span of at least so many seconds."""

    def parse(text: str) -> float:
        found = seconds(text)
        if found < least:
            raise argparse.ArgumentTypeError(f"{text!r} is less than {least:g} seconds")
        return found

    return parse


def place(text: str) -> str:
    """For argparse: earliest, latest, or a time, as the HTTP API spells it."""
    if text in ("earliest", "latest"):
        return text
    digits = text.removeprefix("timestamp:")
    if digits.removeprefix("-").isdecimal() and abs(int(digits)) < 2**63:
        return f"timestamp:{int(digits)}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither earliest, latest, timestamp:MICROSECONDS"
            " nor a time such as 2026-01-31T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.astimezone()
    return f"timestamp:{(moment - _EPOCH) // timedelta(microseconds=1)}"


def start_of(place_text: str) -> Literal["earliest", "latest"] | int:
    """A `place` as the library takes it."""
    if place_text == "earliest":
        return "earliest"
    if place_text == "latest":
        return "latest"
    return int(place_text.removeprefix("timestamp:"))


def java_missing() -> str:
    """Why Spark finds no Java, and what to do; empty if there is one."""
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home, "bin", "java"), os.X_OK):
        return f"JAVA_HOME is {home}, but there is no program bin/java"
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    get_it = "install it (Debian: apt-get install default-jre-headless) or set JAVA_HOME"
    if program is None:
        return f"Spark needs Java {JAVA_MIN} or newer: {get_it}"
    found = _java_version(program)
    if found is not None and found < JAVA_MIN:
        return f"Spark needs Java {JAVA_MIN} or newer, {program} is Java {found}: {get_it}"
    return ""


def other_file_system() -> bool:
    """Whether plain paths may be another file system's for Spark than this machine's."""
    return "HADOOP_CONF_DIR" in os.environ


def _java_version(program: str) -> int | None:
    """17 of `openjdk version "17.0.1"`, 8 of "1.8.0_392"; None: it does not say."""
    try:
        told = subprocess.run(
            [program, "-version"], check=False, capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(match[1]) if match else None


def colours() -> bool:
    """Whether stdout is a terminal of somebody who has not said NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def speaks_unicode() -> bool:
    """Whether stdout takes more than ASCII."""
    return "utf" in (sys.stdout.encoding or "").lower()


def json_line(document: Any) -> str:
    """A document in one line, with its end."""
    return json.dumps(document, ensure_ascii=False) + "\n"


def print_json(document: Any) -> None:
    """One line of JSON on stdout."""
    sys.stdout.write(json_line(document))


def raw(text: bytes) -> None:
    """Bytes to stdout, at once."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """A line for the person at the terminal: stdout is for data."""
    print(text, file=sys.stderr)


def fail(text: str, code: int = 1) -> int:
    """Says why not, and gives the exit code."""
    print(f"barco: {text}", file=sys.stderr)
    return code


class Paper(Console):
    """A console whose reader may leave: rich would end the command with 1 (`barco status | head`)
    where every other line of it ends quietly (`barco.cli.main`)."""

    def on_broken_pipe(self) -> None:
        """Called while the error is handled."""
        raise  # noqa: PLE0704


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout; numbers to the right. Piped, it is neither coloured nor cut."""
    console = Paper(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    table = Table(box=None, pad_edge=False, header_style="bold")
    listed = [list(row) for row in rows]
    for number, name in enumerate(columns):
        numeric = bool(listed) and all(isinstance(row[number], int | float) for row in listed)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in listed:
        table.add_row(*(text_of(cell) for cell in row))
    console.print(table)


def text_of(cell: object) -> str:
    """A cell: numbers with separators, None as a dash. Markup in it stays as it is."""
    if cell is None:
        return "-"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell).replace("[", r"\[")


def size_of(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def time_of(timestamp_us: int) -> str:
    """Microseconds since 1970 as RFC 3339, in UTC."""
    whole, micros = divmod(timestamp_us, 1_000_000)
    try:
        moment = datetime.fromtimestamp(whole, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_us}us"
    return f"{moment.replace(tzinfo=None).isoformat()}.{micros:06}Z"


def _checked(check: Any, text: str) -> str:
    try:
        if not check():
            raise ValueError("give HOST:PORT")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def news(args: argparse.Namespace, words: str, facts: Mapping[str, Any]) -> None:
    """A line of work that goes on: with the time, or as JSON if `--json` was given."""
    if args.json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        print(f"{time.strftime('%H:%M:%S')}  {words}")
    sys.stdout.flush()
