"""What the frames of lineage.log say: generations, and the records of the replica's machine. Pure.

A frame's body is a msgpack list of maps: {"t": its kind, "e": an epoch, ...}. Where frames are lost
in both copies, the generations' own groups say what they held; what was promised and accepted in
them nobody can say, so the replica's machine is told that it is so (`DoubtRecord`).

A journal says once of which disk and which range it is, its `Home`: what it promised binds nobody
else, and who took it for an own one would vote with another's memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgpack
from msgspec import Struct, field

from barco.errors import DataDirError
from barco.model.generation import GENESIS_EPOCH, Kind
from barco.model.ranges import directory_of
from barco.protocol.replication import DoubtRecord
from barco.protocol.replication_codec import U63, to_map
from barco.workers.storage.files.frames import BODY_BYTES_MAX

Record = dict[str, Any]

Name = tuple[int, int]
"""(token, epoch) of a generation."""

Elsewhere = dict[Name, dict[Name | None, bool]]
"""By parent the children of other ranges, and whether they have begun."""

_HALF = 16
"""Of the 32 digits of a disk_uuid."""

FIRST_EPOCH = 2
"""Epoch 1, genesis, is empty and has no files."""

DOUBT = msgpack.packb(
    [{"t": "journal", "e": GENESIS_EPOCH, "r": to_map(DoubtRecord(upto=U63, beyond=0))}]
)
"""The body with which a journal goes on of which something was lost."""


class Lodged(Struct, frozen=True):
    """Of a generation that this broker was never a member of, and has a copy of."""

    members: tuple[int, ...]
    """Ordinals."""
    line: tuple[tuple[int, int, int], ...]
    """(token, epoch, T) of those that it continues and that have a group."""


class Generation(Struct):
    """One shard range's log under one leader session, as far as lineage.log knows it."""

    epoch: int
    session: int | None = None
    """None: only its directory was found."""
    parents: tuple[tuple[int, int], ...] = ()
    """(epoch, T) of each parent."""
    tail: int | None = None
    """T, the gseq of its last group; None: not sealed."""
    end_segment: int = 0
    end_bytes: int = 0
    """Where group T ends."""
    lost: tuple[int, int] | None = None
    """(first, last known) gseq that an operator gave up."""
    expired: bool = False
    """Retention has removed all of it."""
    begin: tuple[int, int, int] = (0, 1, 0)
    """Segment, gseq and prev_crc of the first group that retention has left: the stable mark
    without which a segment that is missing is damage."""
    lodged: Lodged | None = None
    """Set: no log of a member. The machine hears nothing of it, and the core never has it."""

    @property
    def sealed(self) -> bool:
        """Whether T is agreed; nothing may be appended any more."""
        return self.tail is not None


class Parting(Struct):
    """What the machine has given up, and was not moved yet (`aside`)."""

    epoch: int
    tail: int
    generations: list[Generation]


class Home(Struct, frozen=True):
    """Of which disk a journal is, and of which range."""

    disk: str
    """disk_uuid of broker.json."""
    token: int


class Claim(Struct, frozen=True, kw_only=True):
    """Who opens a journal as an own one."""

    home: Home
    ordinal: int
    """Of this broker, as a member."""
    named: bool
    """Every journal of this disk is known to say whose it is. One that does not was begun by an
    earlier version, and says so from now on."""


class Content(Struct):
    """All of it together."""

    home: Home | None = None
    """None: an earlier version has begun it, or that record is lost."""

    generations: dict[int, Generation] = field(default_factory=dict)
    journal: list[Record] = field(default_factory=list)
    wishes: dict[int, Parting] = field(default_factory=dict)
    """By number, what is to be set aside."""
    asides: int = 0
    elsewhere: Elsewhere = field(default_factory=dict)
    gone: set[Name] = field(default_factory=set)
    """Generations of which the log is elsewhere, and that retention has removed there."""


def read(
    name: str, bodies: Iterable[bytes], epochs: Iterable[int], token: int | None = None
) -> Content:
    """What was written, and the generations that only have files (`epochs`). DataDirError: it can
    not be read; `name` is of the file. token: of the range, whose log alone is here; None: any."""
    content = Content()
    for body in bodies:
        for record in _records(name, body):
            _give_up(content, record)
            apply(content.generations, record, token)
            note_elsewhere(content.elsewhere, record)
            if record.get("t") == "gone":
                content.gone.add((*record["p"],))
            if record.get("t") == "journal":
                content.journal.append(record["r"])
            elif record.get("t") == "home":
                content.home = content.home or _home(name, record)
    for record in content.journal:
        _end_alone(content.generations, record, token)
    for epoch in epochs:
        content.generations.setdefault(epoch, Generation(epoch))
    return content


def stranger(
    home: Home | None, journal: Sequence[Record], claim: Claim, *, begun: bool
) -> str | None:
    """Why this is not the journal of who opens it, in words; None: nothing says so.

    begun: there is something in it, and nothing of it was lost, as what says whose it is may be.
    """
    if home is not None and home.disk != claim.home.disk:
        return f"is the journal of disk {home.disk}, and this one is {claim.home.disk}"
    tokens = {home.token} if home is not None else _tokens(journal)
    if tokens and claim.home.token not in tokens:
        return f"is the journal of {directory_of(min(tokens))}"
    heard = (told["disk"][0] for told in journal if told.get("t") == "heard")
    if claim.ordinal in heard:  # Of the others' journals only: nobody tells itself.
        return f"is another broker's journal: it has heard of broker {claim.ordinal}'s"
    if home is None and claim.named and begun:
        return "does not say whose journal it is, and the one that belongs here does"
    return None


def _tokens(journal: Iterable[Record]) -> set[int]:
    """Of the generations that the machine's records are of."""
    gids = (told["generation"][0] if "generation" in told else told.get("gid") for told in journal)
    return {gid[0] for gid in gids if gid is not None}


def home_body(home: Home) -> bytes:
    """Of the frame that says it. The uuid is cut in two: a journal in which a disk stands as it is
    written elsewhere names a member (`clear_stranger` of the supervisor looks for that)."""
    disk = [home.disk[:_HALF], home.disk[_HALF:]]
    return _list_of([msgpack.packb({"t": "home", "e": GENESIS_EPOCH, "d": disk, "k": home.token})])


def _home(name: str, record: Record) -> Home:
    try:
        return Home("".join(record["d"]), int(record["k"]))
    except (KeyError, TypeError, ValueError):
        raise DataDirError(f"{name} was written by a later version of barco") from None


def gone_record(name: Name) -> Record:
    """That retention has removed what is elsewhere; not of any generation of this log."""
    return {"t": "gone", "e": GENESIS_EPOCH, "p": list(name)}


def without_positions(body: bytes) -> bytes:
    """A frame's body without what the journal has heard of others' journals: of a cluster that was
    restored as a whole all are older than that, and nobody is to be blamed for it (rule A5)."""
    left = [each for each in _records("lineage.log", body) if not _is_position(each)]
    return _list_of([msgpack.packb(each) for each in left])


def _is_position(record: Record) -> bool:
    told = record.get("r")
    return isinstance(told, dict) and told.get("t") == "heard"


def bodies(records: Sequence[Record]) -> Iterator[bytes]:
    """Of the frames that hold these, as few as there can be; one is appended at a time."""
    body: list[bytes] = []
    for packed in map(msgpack.packb, records):
        if sum(map(len, body)) + len(packed) > BODY_BYTES_MAX // 2:
            yield _list_of(body)
            body.clear()
        body.append(packed)
    yield _list_of(body)


def journal_record(epoch: int, record: Record) -> Record:
    """One of the machine's."""
    return {"t": "journal", "e": epoch, "r": record}


def _list_of(packed: Sequence[bytes]) -> bytes:
    head: bytes = msgpack.Packer().pack_array_header(len(packed))
    return head + b"".join(packed)


def _records(name: str, body: bytes) -> list[Record]:
    """Of one frame, whose sums are right."""
    try:
        records = msgpack.unpackb(body)
        if all(isinstance(record["e"], int) for record in records):
            return list(records)
    except (ValueError, TypeError, KeyError):
        pass
    raise DataDirError(f"{name} was written by a later version of barco")


def _give_up(content: Content, record: Record) -> None:
    """The machine's word that two others go on without something; or that it has been moved."""
    if record.get("t") == "moved":
        content.wishes.pop(record["n"], None)
        return
    told = record.get("r")
    if record.get("t") != "journal" or not isinstance(told, dict) or told.get("t") != "aside":
        return
    epoch, tail = record["e"], told["value"][0]
    gone = [content.generations.pop(each) for each in sorted(content.generations) if each > epoch]
    known = content.generations.get(epoch)
    if known is not None and told["tail"] > tail:
        gone.insert(0, known)
        content.generations[epoch] = Generation(epoch, known.session, known.parents)
    elif known is not None:
        known.tail = None  # Where it ends is not where it did.
    content.asides += 1
    content.wishes[content.asides] = Parting(epoch, tail, gone)


def _learn(generations: dict[int, Generation], record: Record, token: int | None) -> None:
    """Sessions and parents of the generations that a machine's record speaks of, if their logs are
    of this range: the other child of a split has the same epoch."""
    known = [record["generation"]] if "generation" in record else []
    if record.get("t") in ("decided", "aside"):
        known = record["value"][2]
    for gid, _, _, session, _, parents in known:
        epoch = gid[1]
        if epoch < FIRST_EPOCH or not _is_of(gid, token):
            continue
        generation = generations.setdefault(epoch, Generation(epoch))
        generation.session = session
        generation.parents = tuple((gid[1], tail) for gid, tail in parents if _is_of(gid, token))


def _is_of(gid: Sequence[int], token: int | None) -> bool:
    return token is None or gid[0] == token


def _is_elsewhere(record: Record, token: int | None) -> bool:
    """Whether it is a machine's word on a generation whose log is another range's."""
    told = record.get("r")
    if record.get("t") != "journal" or not isinstance(told, dict):
        return False
    gid = told["generation"][0] if "generation" in told else told.get("gid")
    return gid is not None and not _is_of(gid, token)


def _end_alone(generations: dict[int, Generation], record: Record, token: int | None) -> None:
    """At a start: where a generation with a single member ended, whose seal was not written any
    more. All of it was here when that was decided, so a log that ends before it is damaged."""
    for _, _, _, _, members, parents in record["value"][2] if record.get("t") == "decided" else ():
        for gid, tail in parents if len(members) == 1 else ():
            parent = generations.get(gid[1]) if _is_of(gid, token) else None
            if parent is not None and parent.tail is None:
                parent.tail = tail


def note_elsewhere(elsewhere: Elsewhere, record: Record) -> None:
    """Who else continues a generation: the second child of a split, or the range on its left."""
    told = record.get("r")
    if record.get("t") == "begun":
        child: Name | None = (*record["c"],) if record["c"] is not None else None
        elsewhere.setdefault((*record["p"],), {})[child] = True
    if record.get("t") != "journal" or not isinstance(told, dict) or told.get("t") != "decided":
        return
    parent: Name = (*told["gid"],)
    _, kind, children = told["value"]
    others = [(*gid,) for gid, *_ in children if gid[0] != parent[0]]
    for each in [None] if kind == Kind.HANDOFF else others:
        elsewhere.setdefault(parent, {}).setdefault(each, False)


def apply(generations: dict[int, Generation], record: Record, token: int | None = None) -> None:
    """One record more."""
    if record["e"] < FIRST_EPOCH or _is_elsewhere(record, token):
        generation = Generation(record["e"])
    else:
        generation = generations.setdefault(record["e"], Generation(record["e"]))
    match record.get("t"):
        case "opened":
            generation.session = record["s"]
            generation.parents = tuple((epoch, tail) for epoch, tail in record["p"])
            for epoch, tail in generation.parents:
                parent = generations.get(epoch)
                if parent is not None and parent.tail is None:
                    parent.tail = tail  # Its own record is damaged.
        case "moved" | "begun" | "home" | "gone":
            pass
        case "lodged":  # Again, if it is there: then it is copied anew.
            line = tuple((token, epoch, tail) for token, epoch, tail in record["p"])
            generation.lodged = Lodged(tuple(record["m"]), line)
            generation.session, generation.tail = record["s"], None
            generation.begin, generation.expired = (0, 1, 0), False
        case "sealed":
            generation.tail = record["T"]
            generation.end_segment, generation.end_bytes = record["i"], record["b"]
        case "lost":
            generation.lost = (record["f"], record["l"])
            generation.tail = record["f"] - 1
        case "expired":
            generation.expired = True
        case "begins":
            generation.begin = (record["i"], record["f"], record["c"])
        case "journal":
            if isinstance(record.get("r"), dict):
                _learn(generations, record["r"], token)
        case _:
            pass  # Written by a later version: it has to be harmless to this one.
