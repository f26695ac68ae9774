"""`barco produce`: send events from a file or from standard input."""

import argparse
import io
import re
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import barco
from barco.cli.shared import talk
from barco.cli.shared.lines import KeyField, blocks
from barco.client.base.names import due_us, to_headers

DESCRIPTION = """\
Send events to a topic: each line of FILE is one event, as it is. Without FILE, or with -, lines
are read from standard input and sent as they come. Blank lines are skipped.

The command returns when every event is durable. Each is stored once, however often the network or
the broker fails in between, and events with the same key keep their order.
"""

EPILOG = f"""\
Keys:
  Events with the same key go to the same slice and stay in order there. Events without a key are
  spread over all slices.

{talk.ENDPOINT_HELP}
Examples:
  echo '{{"hello": 1}}' | barco produce greetings
  tail -F /var/log/app.json | barco produce logs --key-field host
  barco produce images picture.png --raw --key camera-7 --header type=image/png
  barco produce images --null --key camera-7
  barco produce orders orders.ndjson --key-field customer --json
  echo '{{"remind": 7}}' | barco produce reminders --deliver-after 30s

{talk.EXIT_CODES}"""


PATIENCE_SECONDS = 2.0
"""Without an acknowledgement: then the command says what it waits for."""


@dataclass(slots=True)
class Sent:
    """How far a command is."""

    events: int = 0
    """Acknowledged."""
    bytes: int = 0
    """Of the values that were read."""
    waits: bool = True
    """For a broker: to be found at first, then to acknowledge what was read."""
    keyed: bool = False
    """Whether any event had a key."""

    @property
    def told(self) -> str:
        """The events, for people."""
        return f"{self.events:,} event{'' if self.events == 1 else 's'}"


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "produce", help="send events, one a line", description=DESCRIPTION,
        epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("topic", metavar="TOPIC", type=talk.topic, help="where to")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="default: - (stdin)")
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--key", metavar="KEY", help="the key of every event")
    key.add_argument("--key-field", metavar="FIELD", help="lines are JSON: the key is this field")
    parser.add_argument("--header", metavar="NAME=VALUE", action="append", type=header, default=[],
                        help="of every event; may be given again")  # fmt: skip
    parser.add_argument("--null", action="store_true",
                        help="one event without a value, to say that --key is no more")  # fmt: skip
    delay = parser.add_mutually_exclusive_group()
    delay.add_argument("--deliver-after", metavar="SPAN", type=span,
                       help="they wait so long: 1500ms, 30s, 5m, 2h, 1d")  # fmt: skip
    delay.add_argument("--deliver-at", metavar="TIME", type=moment,
                       help="they wait until then: 2026-11-27T08:30:00Z")  # fmt: skip
    parser.add_argument("--raw", action="store_true", help="the whole input is one event")
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds, default=30.0,
                        help="give an event up after so long (default: %(default)g)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print what was sent, as JSON")


def header(text: str) -> tuple[str, str]:
    """A name and its value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        to_headers([(name, value)])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name, value


def span(text: str) -> timedelta:
    """How long an event is to wait."""
    match = re.fullmatch(r"(\d{1,12})(ms|s|m|h|d)", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number with ms, s, m, h or d")
    unit = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    try:
        found = timedelta(**{unit[match[2]]: int(match[1])})
        due_us("t", None, None, found)
    except (OverflowError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is too long: a week at the most") from None
    return found


def moment(text: str) -> datetime:
    """Until when."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time with a zone (ISO 8601)")
    try:
        due_us("t", None, found, None)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    return found


def _delay(args: argparse.Namespace) -> dict[str, Any]:
    given = {"deliver_at": args.deliver_at, "deliver_after": args.deliver_after}
    return {name: value for name, value in given.items() if value is not None}


def _check(args: argparse.Namespace) -> str | None:
    try:
        to_headers(args.header)
    except ValueError as error:
        return str(error)
    if args.null and (args.raw or args.key_field or args.file != "-"):
        return "--null is one event without input: give its key with --key"
    if args.raw and args.key_field:
        return "--raw is one event as it is: give its key with --key"
    if args.timeout <= 0:
        return "--timeout is more than 0"
    return None


def run(args: argparse.Namespace) -> int:
    """Send, wait for every event, say how many there were."""
    if wrong := _check(args):
        return talk.fail(wrong, 2)
    try:
        stream = io.BytesIO() if args.null else open_input(args.file)
    except OSError as error:
        return talk.fail(f"cannot read {args.file}: {error.strerror}")
    began = time.monotonic()
    sent = Sent()
    waiting = threading.Timer(PATIENCE_SECONDS, _tell_waiting, (args, sent))
    waiting.daemon = True
    try:
        waiting.start()
        with stream, barco.Producer(talk.access(args), delivery_timeout_s=args.timeout) as producer:
            sent.waits = False
            one = args.raw or args.null
            (_send_one if one else _send_lines)(producer, args, stream, sent)
    except KeyboardInterrupt:
        talk.say(f"interrupted: {sent.told} acknowledged in {args.topic}, perhaps more stored")
        raise
    finally:
        waiting.cancel()
    elapsed = time.monotonic() - began
    if sent.events and args.key_field and not sent.keyed:
        tell_keyless(args.key_field)
    if args.json:
        talk.print_json(
            {
                "topic": args.topic,
                "events": sent.events,
                "bytes": sent.bytes,
                "seconds": round(elapsed, 3),
            }
        )
    else:
        talk.say(f"{sent.told} acknowledged in {args.topic}")
    return 0


def _tell_waiting(args: argparse.Namespace, sent: Sent) -> None:
    if sent.waits and not sent.events:
        talk.say(f"nothing is acknowledged yet by {args.endpoint}: waiting {args.timeout:g} s")


def open_input(name: str) -> BinaryIO:
    """The file, or standard input for -, unbuffered."""
    if name == "-":
        return open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    return Path(name).open("rb", buffering=0)


def has_keys(keys: "list[bytes | None] | None") -> bool:
    """Whether any of them is one."""
    return keys is not None and keys.count(None) < len(keys)


def tell_keyless(field: str) -> None:
    """One line, for whoever has misspelt it: events were stored, and have no order."""
    talk.say(f"warning: no event has the field {field}: they have no key, and keep no order")


def settle(futures: "deque[Future[int]]", *, all: bool = False) -> int:
    """Takes settled futures off the front, or waits for all: how many events that were."""
    events = 0
    while futures and (all or futures[0].done()):
        events += futures.popleft().result()
    return events


def _send_one(
    producer: "barco.Producer", args: argparse.Namespace, stream: BinaryIO, sent: Sent
) -> None:
    value = b"".join(iter(lambda: stream.read(1024 * 1024), b""))
    sent.bytes = len(value)
    sent.waits = True
    given = None if args.null else value
    producer.send(args.topic, given, args.key, headers=args.header, **_delay(args)).result()
    sent.events = 1


def _send_lines(
    producer: "barco.Producer", args: argparse.Namespace, stream: BinaryIO, sent: Sent
) -> None:
    field = KeyField(args.key_field) if args.key_field else None
    key = None if args.key is None else args.key.encode()
    futures: deque[Future[int]] = deque()
    if delay := _delay(args):
        _send_delayed(producer, args, stream, sent, delay)
        return
    for lines in blocks(stream):
        keys = [key] * len(lines) if field is None else field.keys(lines)
        sent.keyed = sent.keyed or has_keys(keys)
        sent.waits = True
        headers = [args.header] * len(lines) if args.header else None
        futures.append(producer.send_many(args.topic, lines, keys, headers))
        sent.bytes += sum(map(len, lines))
        sent.events += settle(futures)
    while futures:
        sent.events += futures.popleft().result()


def _send_delayed(
    producer: "barco.Producer",
    args: argparse.Namespace,
    stream: BinaryIO,
    sent: Sent,
    delay: dict[str, Any],
) -> None:
    field = KeyField(args.key_field) if args.key_field else None
    for lines in blocks(stream):
        keys = [args.key] * len(lines) if field is None else field.keys(lines)
        sent.keyed = sent.keyed or has_keys(keys)
        sent.waits = True
        futures = [
            producer.send(args.topic, line, key, headers=args.header, **delay)
            for line, key in zip(lines, keys, strict=True)
        ]
        for future in futures:
            future.result()
            sent.events += 1
        sent.bytes += sum(map(len, lines))
