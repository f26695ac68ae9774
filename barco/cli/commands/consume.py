"""`barco consume`: print events, with or without a group."""

import argparse
import base64
import json
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import barco
from barco.cli.shared import talk
from barco.client.consuming.enrolment import SESSION_S_MAX, SESSION_S_MIN
from barco.client.reader import read_batches
from barco.client.wire.codec import Event

DESCRIPTION = """\
Print the events of topics. Without --group nothing is committed: the command reads from --from to
the end, or with --follow for ever. With --group it is a member of that group: it goes on where the
group stopped, shares the slices with the other members, and commits what it has printed.
"""

EPILOG = f"""\
Output:
  By default a line for each event: time, place (topic/slice@offset), key, value.
  --values prints the values alone, a line each; --json an object a line: topic, slice, epoch,
  offset, timestamp (microseconds since 1970), cursor, key, value. A value that is JSON is spliced
  as it is, other text is a string, anything else is {{"base64": "..."}}.
  Within a slice, so for each key, the order is that of the log; between slices there is none.

Where to begin (--from):
  earliest, latest, timestamp:MICROSECONDS, or a time such as 2026-01-31T12:00:00Z. With --group
  earliest or latest, and only where the group has no position yet (see `barco groups seek`).

{talk.ENDPOINT_HELP}
Examples:
  barco consume greetings
  barco consume logs --from 2026-01-31T12:00:00Z --follow
  barco consume flights --group billing --count 1000 --json | jq .value.dest
  barco consume a b c --group audit --follow

{talk.EXIT_CODES}\
       with --count: fewer events than that came before --timeout
"""

QUIET_S = 2.0
"""Without --follow a group's reader stops when nothing new came for so long."""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "consume", help="print events", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("topics", metavar="TOPIC", nargs="+", type=talk.topic, help="what to read")
    parser.add_argument("--group", metavar="NAME", help="be a member of this group")
    parser.add_argument(
        "--from",
        dest="start",
        metavar="PLACE",
        type=talk.place,
        default="earliest",
        help="where to begin (default: %(default)s)",
    )
    parser.add_argument("--session", metavar="SECONDS", type=_session, default=30.0,
                        help="with --group: killed, it keeps its slices for so long, 5 to 600 "
                        "(default: %(default)g)")  # fmt: skip
    parser.add_argument("--count", metavar="N", type=talk.count, help="stop after N events")
    parser.add_argument("--follow", action="store_true", help="go on with new events")
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds,
                        help="stop when nothing came for so long")  # fmt: skip
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--values", action="store_true", help="print values only")
    output.add_argument("--json", action="store_true", help="print an object a line")


def _session(text: str) -> float:
    value = talk.seconds(text)
    if not SESSION_S_MIN <= value <= SESSION_S_MAX:
        raise argparse.ArgumentTypeError(f"from {SESSION_S_MIN:g} to {SESSION_S_MAX:g} seconds")
    return value


def run(args: argparse.Namespace) -> int:
    """Print until the end, the count, or the time-out."""
    if args.group and args.start.startswith("timestamp:"):
        text = "a new group begins at earliest or latest; to move one: barco groups seek"
        return talk.fail(text, 2)
    if len(args.topics) > 1 and not args.group and args.follow:
        return talk.fail("to follow several topics at once, give a --group", 2)
    printer = _Printer(args)
    try:
        if args.group:
            _consume_group(args, printer)
        else:
            for topic in args.topics:
                _read_topic(args, topic, printer)
    finally:
        printer.flush()
    if args.count and printer.count < args.count:
        return talk.fail(f"{printer.count:,} of {args.count:,} events came")
    return 0


class _Printer:
    """Writes events to stdout, at most --count of them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.count = 0
        self._limit: int | None = args.count
        self._out = sys.stdout.buffer
        self._format = values if args.values else as_json if args.json else for_people

    @property
    def done(self) -> bool:
        """True once --count events were written."""
        return self._limit is not None and self.count >= self._limit

    def write(self, events: list[Event]) -> None:
        """As many of them as are still wanted, in one go."""
        wanted = events if self._limit is None else events[: self._limit - self.count]
        self.count += len(wanted)
        self._out.write(b"".join(map(self._format, wanted)))
        self._out.flush()

    def flush(self) -> None:
        """Everything to the reader."""
        self._out.flush()


def values(event: Event) -> bytes:
    """The value, if there is one, and a line end."""
    return (event.value or b"") + b"\n"


def as_json(event: Event) -> bytes:
    """An object on a line."""
    document = {
        "topic": event.topic,
        "slice": event.slice,
        "epoch": event.epoch,
        "offset": event.offset,
        "timestamp": event.timestamp_us,
        "cursor": event.next_cursor,
        "key": None if event.key is None else _text(event.key),
    }
    head = json.dumps(document, ensure_ascii=False)[:-1].encode("utf-8", "surrogatepass")
    value = b"null" if event.value is None else _json_value(event.value)
    headers = b""
    if event.headers:
        texts = {name: _text(text) for name, text in event.headers}
        headers = b', "headers": ' + json.dumps(texts, ensure_ascii=False).encode()
    return head + b', "value": ' + value + headers + b"}\n"


def for_people(event: Event) -> bytes:
    """Time, place, key, value, headers; control characters are shown, not obeyed."""
    place = f"{event.topic}/{event.slice}@{event.offset}"
    key = "-" if event.key is None else _shown(event.key)
    value = "-" if event.value is None else _shown(event.value)
    headers = "".join(f"  {name}={_shown(text)}" for name, text in event.headers)
    return f"{talk.time_of(event.timestamp_us)}  {place}  {key}  {value}{headers}\n".encode()


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _text(raw: bytes) -> object:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _json_value(raw: bytes) -> bytes:
    try:
        text = raw.decode()
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(_text(raw), ensure_ascii=False).encode()
    # One line for each event: JSON may hold line ends between its tokens.
    return json.dumps(json.loads(text)).encode() if "\n" in text else text.strip().encode()


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _consume_group(args: argparse.Namespace, printer: _Printer) -> None:
    # Killed politely, it still says goodbye: its slices are free for the others at once.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    quiet_s = args.timeout if args.timeout is not None else None if args.follow else QUIET_S
    with barco.Consumer(
        args.topics,
        group=args.group,
        endpoint=talk.access(args),
        start=args.start,
        session_seconds=args.session,
    ) as consumer:
        for batch in _polls(consumer, quiet_s):
            room = None if args.count is None else args.count - printer.count
            printer.write(batch)
            if room is not None and len(batch) >= room:
                consumer.keep(batch[room:])
                return


def _polls(consumer: "barco.Consumer", quiet_s: float | None) -> Iterator[list[Event]]:
    last = time.monotonic()
    while True:
        wait_s = 30.0 if quiet_s is None else last + quiet_s - time.monotonic()
        if batch := consumer.poll(max(0.0, wait_s)):
            yield batch
            last = time.monotonic()
        elif quiet_s is not None and time.monotonic() >= last + quiet_s:
            return


def _read_topic(args: argparse.Namespace, topic: str, printer: _Printer) -> None:
    if printer.done:
        return
    for batch in read_batches(
        topic,
        talk.access(args),
        start=talk.start_of(args.start),
        follow=args.follow,
        quiet_s=args.timeout,
    ):
        printer.write(batch)
        if printer.done:
            return
