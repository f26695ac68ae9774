"""What a user says with `.option(...)`: the names and meanings of Spark's Kafka source.

Spark hands options over as text, names in lower case. Times are milliseconds since 1970 here, as
Kafka's users write them. What is no option is refused: a misspelt `startingOffsets` that is passed
over would read the wrong events.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barco.client.base.names import DEFAULT_ENDPOINT
from barco.client.wire.access import HTTPS, Access, checked_token, read_token
from barco.limits import GROUP_NAME_BYTES_MAX, POLL_BYTES_MAX
from barco.protocol.cursor import Cursor
from barco.types import MiB

T = TypeVar("T")

DEFAULT_ACCESS = Access.of(DEFAULT_ENDPOINT)
EARLIEST, LATEST = -2, -1
"""In offsets by partition, as Kafka has them."""

Place = str | int
"""Where in a slice: "earliest", "latest", "timestamp:<µs>" or an offset."""

_IGNORED = re.compile(r"fail[-_]?fast|path|mode|kafka\.security\.protocol", re.ASCII)
"""What Spark adds, and that there is no security, which is so."""

_KAFKAS = re.compile(r"kafka\..*|groupidprefix|kafkaconsumer\..*|fetchoffset\..*", re.ASCII)
"""Kafka's own settings, which nobody would keep here."""

_SECURITY = re.compile(
    r"user(name)?|password|kafka\.(sasl|ssl)\..*|kafka\.security\.protocol", re.ASCII
)
"""What a user would say of credentials: passing it over would promise what nobody keeps."""

_TOPIC = re.compile(r"[A-Za-z0-9_.-]{1,127}", re.ASCII)


class OptionError(ValueError):
    """An option cannot be used as it is; the message names it and says what it may be."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where to begin or to end: one word for all slices, offsets or times by topic."""

    word: str = ""
    by_topic: Mapping[str, Mapping[int | str, Place]] = field(default_factory=dict)
    """By the number of a partition, or by the name of a slice."""
    given: bool = False

    def of(self, topic: str, partition: int, default: Place, name: str = "") -> Place:
        """The place in one slice; `default` where the user named none."""
        if self.word:
            return self.word
        named = self.by_topic.get(topic, {})
        return named.get(partition, named.get(name, default))

    def names(self, place: Place) -> bool:
        """Whether it is said of all slices, or of one."""
        said = [each for named in self.by_topic.values() for each in named.values()]
        return place in (self.word, *said)

    def times(self) -> list[str]:
        """Every timestamp that has to be looked up."""
        places = [place for named in self.by_topic.values() for place in named.values()]
        found = {p for p in (self.word, *places) if isinstance(p, str) and ":" in p}
        return sorted(found)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read, checked. Made once on the driver, and sent to the tasks."""

    access: Access = DEFAULT_ACCESS
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression that whole names match; `topics` is empty then."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Partitions by topic, for `assign`; topics without an entry have all of theirs."""
    starting: Places = Places()
    ending: Places = Places()
    strict_times: bool = True
    """Fail where no event is as late as the starting timestamp."""
    fail_on_data_loss: bool = True
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_s: float = 900.0
    partitions_min: int = 0
    partition_records_max: int | None = None
    partition_bytes_max: int = 64 * MiB
    """Stored bytes of one Spark partition, about."""
    fetch_bytes: int = 8 * MiB
    """Stored bytes of one request."""
    batch_bytes: int = 1 * MiB
    """Uncompressed bytes of one Arrow batch, about."""
    timeout_s: float = 120.0
    """How long a slice that nobody serves is waited for, before the task fails."""
    group: str | None = None
    """The consumer group whose positions are those of the stream, for others to see."""
    include_headers: bool = False
    columns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool) -> "ReadOptions":
        """The options; OptionError if one is wrong, unknown, or they contradict each other."""
        reading = Reading(given)
        topics, pattern, assigned = _subscription(reading)
        options = cls(
            access=access_of(reading),
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            starting=_places(reading, "starting", LATEST if stream else EARLIEST),
            ending=_places(reading, "ending", LATEST),
            strict_times=_strict(reading),
            fail_on_data_loss=reading.flag("failOnDataLoss", True),
            offsets_per_trigger_max=reading.number("maxOffsetsPerTrigger", None),
            offsets_per_trigger_min=reading.number("minOffsetsPerTrigger", None),
            trigger_delay_s=reading.take("maxTriggerDelay", duration_s, 900.0),
            partitions_min=reading.number("minPartitions", 0) or 0,
            partition_records_max=reading.number("maxRecordsPerPartition", None),
            partition_bytes_max=reading.number("maxBytesPerPartition", None) or 64 * MiB,
            fetch_bytes=min(reading.number("fetchBytes", None) or 8 * MiB, POLL_BYTES_MAX),
            batch_bytes=min(reading.number("batchBytes", None) or 1 * MiB, 256 * MiB),
            timeout_s=(reading.number("fetchTimeoutMs", None) or 120_000) / 1000,
            group=_group_of(reading),
            include_headers=reading.flag("includeHeaders", False),
            columns=reading.take("columns", _words, ()),
        )
        if stream and options.ending.given:
            raise OptionError("ending offsets and timestamps are for batch reads only")
        if not stream and options.group is not None:
            raise OptionError("option groupId: a batch read has no position, only a stream has")
        if not stream and options.starting.word == "latest":
            raise OptionError(
                "option startingOffsets: a batch read that begins at the latest ends there"
            )
        reading.refuse_the_rest()
        return options


class Reading:
    """The options, and which of them nobody has asked for yet."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._left = set(self._given)
        self._known: list[str] = []

    def has(self, name: str) -> bool:
        """Whether the user has given it."""
        return name.lower() in self._given

    def take(self, name: str, convert: Callable[[str], T], default: T) -> T:
        """One option, converted."""
        self._known.append(name)
        self._left.discard(name.lower())
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return convert(text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(f"option {name}: {error}") from None

    def text(self, name: str) -> str | None:
        """As it stands."""
        given: str | None = self.take(name, str, "") or None
        return given

    def number(self, name: str, default: int | None) -> int | None:
        """A positive whole number."""
        return self.take(name, _positive, default)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        return self.take(name, _flag, default)

    def refuse_the_rest(self) -> None:
        """OptionError if something is left that we do not know."""
        for name in sorted(self._left):
            if _SECURITY.fullmatch(name) and self._given[name].upper() != "PLAINTEXT":
                raise OptionError(
                    f"option {name}: barco takes a user's token (tokenFile or token), and TLS by "
                    "https://HOST:PORT and the options ca and certificate; leave it out"
                )
            if _KAFKAS.fullmatch(name) and not _IGNORED.fullmatch(name):
                raise OptionError(
                    f"option {name}: it is of Kafka's client, which is not used here: leave it out "
                    "(fetchTimeoutMs, writeTimeoutMs, fetchBytes and groupId are barco's)"
                )
            if not _IGNORED.fullmatch(name):
                raise OptionError(
                    f"there is no option {name!r}; there are: {', '.join(sorted(self._known))}"
                )


def access_of(reading: Reading) -> Access:
    """The brokers to ask, host:port or https://host:port; any that answers knows the others.

    Options ca, certificate, tokenFile: paths of files, here: of whom to trust, with the job's own
    certificate (its key in it, or beside it with .key at the end), and with a user's token. What
    is in them goes to the tasks. Option token: the token itself.
    """
    ca, certificate = reading.text("ca") or "", reading.text("certificate") or ""
    token = reading.take("tokenFile", _token_in, "")
    if token and reading.has("token"):
        raise OptionError("options token and tokenFile: give one of them")
    token = reading.take("token", checked_token, token)
    found = Access.of(DEFAULT_ENDPOINT, token)
    for name in ("kafka.bootstrap.servers", "bootstrap.servers", "endpoints"):
        found = reading.take(name, lambda text: _access(text, token, ca, certificate), found)
    return found


def _token_in(path: str) -> str:
    try:
        return read_token(path)
    except OSError as error:
        raise ValueError(f"cannot read {path!r}: {error.strerror}") from None


def _group_of(reading: Reading) -> str | None:
    found: str | None = None
    for name in ("kafka.group.id", "groupId"):
        found = reading.take(name, _group, found)
    return found


def _group(text: str) -> str:
    if not (0 < len(text) <= GROUP_NAME_BYTES_MAX and text.isascii() and text.isprintable()):
        raise ValueError(f"1 to {GROUP_NAME_BYTES_MAX} printable ASCII characters")
    return text


def _access(text: str, token: str, ca: str, certificate: str) -> Access:
    words = _words(text)
    for word in words:
        host, _, port = word.removeprefix(HTTPS).rpartition(":")
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{word!r} is not HOST:PORT")
    if not words:
        raise ValueError("give at least one HOST:PORT")
    try:
        found = Access.of(words, token, ca=ca, certificate=certificate)
        if found.tls is not None:
            found.tls.context()  # What can not be used is told here, not by each task.
    except OSError as error:
        where = error.filename or certificate or ca
        raise ValueError(f"ca, certificate: cannot use {where}: {error.strerror}") from None
    return found


def _subscription(
    reading: Reading,
) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]]]:
    """(topics, pattern, partitions by topic) of subscribe, subscribePattern, assign or load()."""
    given = [n for n in ("subscribe", "subscribePattern", "assign", "path") if reading.has(n)]
    if len(given) != 1:
        said = f"not {' and '.join(given)} together" if given else "none is given"
        raise OptionError(f"say what to read with subscribe, subscribePattern or assign: {said}")
    nothing: tuple[str, ...] = ()
    topics = reading.take("subscribe", _topics, nothing) or reading.take("path", _topics, nothing)
    pattern = reading.take("subscribePattern", _pattern, None)
    unassigned: dict[str, tuple[int, ...]] = {}
    assigned = reading.take("assign", _assigned, unassigned)
    return topics or tuple(sorted(assigned)), pattern, assigned


def _topics(text: str) -> tuple[str, ...]:
    words = _words(text)
    if not words:
        raise ValueError("no topic is named")
    for word in words:
        if not _TOPIC.fullmatch(word):
            raise ValueError(f"{word!r} is no name of a topic")
    return tuple(dict.fromkeys(words))


def _pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression of Python: {error}") from None
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    document = _object(text, '{"topic":[0,1]}')
    if not document or not all(isinstance(each, list) for each in document.values()):
        raise ValueError('JSON such as {"topic":[0,1]} is needed')
    return {topic: tuple(sorted({_whole(p) for p in each})) for topic, each in document.items()}


def _places(reading: Reading, which: str, default: int) -> Places:
    """Timestamp before OffsetsByTimestamp before Offsets, as Kafka has it."""
    offsets = reading.take(f"{which}Offsets", _offsets, None)
    by_time = reading.take(f"{which}OffsetsByTimestamp", _by_time, None)
    time = reading.take(f"{which}Timestamp", _milliseconds, None)
    if which == "ending" and offsets is not None and offsets.names("earliest"):
        raise OptionError('option endingOffsets: "latest" or offsets by topic and partition')
    found = time or by_time or offsets
    if found is None:
        return Places(word="latest" if default == LATEST else "earliest")
    return found


def _offsets(text: str) -> Places | None:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Places(word=word, given=True)
    names = {EARLIEST: "earliest", LATEST: "latest"}
    table: dict[str, dict[int | str, Place]] = {}
    for topic, named in _by_partition(text):
        table[topic] = {}
        for partition, value in named.items():
            if "/" in partition:  # As a stream's progress has it.
                table[topic][_slice_name(partition)] = Cursor.parse(str(value)).offset
                continue
            offset = _whole(value)
            if offset < EARLIEST:
                raise ValueError(f"{offset} is no offset")
            table[topic][_whole(partition)] = names.get(offset, offset)
    return Places(by_topic=table, given=True)


def _slice_name(text: str) -> str:
    if not re.fullmatch(r"-?[0-9]+/[0-9]+", text, re.ASCII):
        raise ValueError(f"{text!r} is neither a partition's number nor a slice's name")
    return text


def _by_time(text: str) -> Places | None:
    table: dict[str, dict[int | str, Place]] = {}
    for topic, named in _by_partition(text):
        table[topic] = {_whole(p): _timestamp(str(value)) for p, value in named.items()}
    return Places(by_topic=table, given=True)


def _milliseconds(text: str) -> Places | None:
    return Places(word=_timestamp(text), given=True)


def _timestamp(text: str) -> str:
    value = _whole(text)
    # -1 and -2 are what Kafka's options have for its ends: nobody means a time by them.
    if not -(2**53) < value < 2**53 or value in (EARLIEST, LATEST):
        raise ValueError(f"{value} is not a time in milliseconds since 1970")
    return f"timestamp:{value * 1000}"


def _strict(reading: Reading) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    word = reading.take(name, str, "error").lower()
    if word not in ("error", "latest"):
        raise OptionError(f"option {name}: error or latest")
    return word == "error"


def _object(text: str, example: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    raise ValueError(f"JSON such as {example} is needed")


def _by_partition(text: str) -> Iterable[tuple[str, dict[str, Any]]]:
    document = _object(text, '{"topic":{"0":23}}')
    if not all(isinstance(named, dict) for named in document.values()):
        raise ValueError('JSON such as {"topic":{"0":23}} is needed')
    return document.items()


def _whole(value: object) -> int:
    """A number as users write it: in JSON, or in quotes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9]+\s*", value, re.ASCII):
        return int(value)
    raise ValueError(f"{value!r} is not a whole number")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _positive(text: str) -> int:
    value = _whole(text)
    if value <= 0:
        raise ValueError(f"{value} is not positive")
    return value


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("true or false")
    return word == "true"


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(text: str) -> float:
    """Seconds of "500ms", "30s", "15m", "2h"; a bare number is milliseconds."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] or "ms") not in _UNITS:
        raise ValueError("a time such as 500ms, 30s or 15m")
    return int(match[1]) * _UNITS[match[2] or "ms"]
