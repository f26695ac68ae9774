"""What a process has whole of generations that have ended, for brokers that leave.

Two operations. `ended` tells of each one of the own token what it is, and who was a member of it:
what a depot believes when two say the same. `ended_groups` gives its groups as they stand.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from barco.cluster.ring.depots import EndedLog
from barco.errors import NotReadyError, ProtocolError, RequestError
from barco.limits import BROKERS_MAX, GROUP_BYTES_MAX
from barco.model.generation import Generation, Gid, Parent
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol.replication_codec import MEMBERS_MAX, U63
from barco.types import Epoch, MiB, Token
from barco.workers.operations.origins import Args, number
from barco.workers.peers.voices import VOICES
from barco.workers.seams import SiblingsLike
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.stores.lodging import Lodging

ENDED_MAX = 128
"""Generations in one answer; who asks goes on behind the last."""

PART_BYTES = 4 * MiB
"""Of groups, in one answer."""

LINE_MAX = 64
"""Parents of one generation."""

ANSWER_SECONDS = 10.0

U64 = 2**64 - 1


class EndedGeneration(NamedTuple):
    """One that has ended, as a process tells it. Of these fields two have to say the same."""

    epoch: int
    session: int
    tail: int
    header_crc: int
    """Of group T: each group has the checksum of the one before, so this proves all of them."""
    members: tuple[int, ...]
    """Ordinals."""
    line: tuple[tuple[int, int, int], ...]
    """(token, epoch, T) of what it continues, where that has groups."""


class HeldCopy(NamedTuple):
    """What one process has of it."""

    generation: EndedGeneration
    first: int
    """The oldest group that retention has left there."""
    prev_crc: int
    """Of the group before that one."""
    bytes: int
    """Of its files."""
    whole: bool
    """It has all of it; a depot also has read it again."""
    begun: int
    """Bytes that a depot has by now of what it does not have whole."""

    @property
    def expired(self) -> bool:
        """Whether retention has removed all of it there."""
        return self.first > self.generation.tail > 0


class Ended:
    """The side that answers, for one replica's files."""

    def __init__(
        self,
        token: int,
        lodging: Lodging,
        *,
        record: Callable[[Gid], Generation | None],
        nearest: Callable[[Generation], Sequence[Parent]],
        whole: Callable[[], bool],
    ) -> None:
        """`record`: a generation that is known here. `nearest`: those that one continues which have
        a group. `whole`: whether all that was told here is here."""
        self._token, self._lodging, self._store = token, lodging, lodging.store
        self._record, self._nearest, self._whole = record, nearest, whole
        self._crcs: dict[tuple[int, int], int] = {}
        self._room = asyncio.Semaphore(2)
        self.operations: dict[str, Callable[[Args], Awaitable[Any]]] = {
            "ended": self._ended,
            "ended_groups": self._groups,
        }

    async def _ended(self, args: Args) -> dict[str, Any]:
        self._check(args)
        after = number(args, "after", 0, U63)
        known = [each for each in self._store.lineage.generations() if each.epoch > after]
        found: list[list[Any]] = []
        expired: list[tuple[int, int]] = []
        last = after
        for each in known:
            if len(found) + len(expired) >= ENDED_MAX:
                return {"ended": found, "expired": expired, "more": last}
            last = each.epoch
            if each.expired and each.tail:
                expired.append((each.epoch, each.tail))
            if each.expired or each.tail == 0 or (each.tail is None and each.lodged is None):
                continue
            if (told := await self._told(each.epoch)) is not None:
                found.append(told)
        return {"ended": found, "expired": expired, "more": None}

    def _check(self, args: Args) -> None:
        if number(args, "token", TOKEN_MIN, TOKEN_MAX) != self._token:
            raise NotReadyError("This process holds another range.")
        if not self._whole():
            raise NotReadyError("Not all of this range's history is here yet.")

    async def _told(self, epoch: int) -> list[Any] | None:
        """None: it can not be said what it is."""
        known, scrub = self._store.lineage.get(epoch), self._store.scrub
        assert known is not None and scrub is not None, "recovery is done"
        lodged, tail = known.lodged, known.tail or 0
        if lodged is not None:
            members, line = lodged.members, lodged.line
            whole = self._lodging.is_sound(epoch)
        else:
            record = self._record(Gid(Token(self._token), Epoch(epoch)))
            if record is None:
                return None
            members = tuple(int(each.ordinal) for each in record.members)
            line = tuple((*each.gid, each.tail) for each in self._nearest(record))
            whole = not scrub.damaged(epoch)
        crc = await self._crc(epoch, tail)
        first, prev_crc = await self._store.first_group(epoch, tail)
        size = self._store.bytes_of(epoch)
        begun = 0 if whole else size if known.sealed else await self._lodging.begun(epoch)
        what = [epoch, known.session or 0, tail, crc, list(members), [list(each) for each in line]]
        return [*what, first, prev_crc, size, whole and crc != 0, begun]

    async def _crc(self, epoch: int, tail: int) -> int:
        """0: it is not here, or can not be read."""
        if not tail:
            return 0
        if (epoch, tail) not in self._crcs:
            crc = await self._store.groups.header_crc(epoch, tail)
            if crc is None:
                return 0
            self._crcs[epoch, tail] = crc
        return self._crcs[epoch, tail]

    async def _groups(self, args: Args) -> dict[str, Any]:
        """Groups from `first` on; of one that is too large for an answer, a part."""
        self._check(args)
        epoch, first = number(args, "epoch", 1, U63), number(args, "first", 1, U63)
        offset = number(args, "offset", 0, GROUP_BYTES_MAX)
        known = self._store.lineage.get(epoch)
        if known is None or not known.sealed or known.expired:
            raise NotReadyError(f"Epoch {epoch} of the range at {self._token} is not here.")
        last = min(known.tail or 0, first) if offset else known.tail or 0
        async with self._room:
            found = await self._store.groups.read(epoch, first, last, PART_BYTES)
        groups = [group for _, group in found]
        if not groups:
            raise NotReadyError(f"Group {first} of epoch {epoch} is not here.")
        if len(groups[0]) <= PART_BYTES and not offset:
            return {"groups": groups}
        return {"part": groups[0][offset : offset + PART_BYTES], "of": len(groups[0])}


def lodged_here(token: int, lineage: Lineage) -> dict[Gid, list[Parent]]:
    """Whole copies of what this broker was no member of, and what each of them continues."""
    return {
        Gid(Token(token), Epoch(each.epoch)): [
            Parent(Gid(Token(at), Epoch(epoch)), tail) for at, epoch, tail in each.lodged.line
        ]
        for each in lineage.generations()
        if each.lodged is not None and each.sealed
    }


# --- The side that asks ---------------------------------------------------------------------------


async def ask_ended(siblings: SiblingsLike, peer: int, token: int) -> list[HeldCopy]:
    """What a process says of its own range. A BarcoError: it can not be asked, or lies."""
    found: list[HeldCopy] = []
    after = 0
    while True:
        args = {"token": token, "after": after}
        answer = await siblings.call(peer, "ended", args, ANSWER_SECONDS)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("ended"), list):
            raise ProtocolError("an answer to `ended` that is none")
        if len(answer["ended"]) > ENDED_MAX:
            raise ProtocolError("an answer to `ended` that is too long")
        found += [held for each in answer["ended"] if (held := _held(each)) is not None]
        expired = answer.get("expired", ())  # An earlier version does not say it.
        if not isinstance(expired, (list, tuple)) or len(expired) > ENDED_MAX:
            raise ProtocolError("generations that expired, and are none")
        found += map(_expired, expired)
        more = answer.get("more")
        if more is None:
            return found
        if type(more) is not int or more <= after:
            raise ProtocolError("an answer to `ended` that has no end")
        after = more


async def ask_group_part(
    siblings: SiblingsLike, peer: int, token: int, epoch: int, first: int
) -> list[bytes]:
    """Groups from `first` on as a process has them: at least one. A BarcoError: none."""
    held = bytearray()
    while True:
        args = {"token": token, "epoch": epoch, "first": first, "offset": len(held)}
        answer = await siblings.call(peer, "ended_groups", args, ANSWER_SECONDS)
        if not isinstance(answer, Mapping):
            raise ProtocolError("groups that are none")
        if "groups" in answer:
            groups = answer["groups"]
            if not isinstance(groups, list) or not groups or held:
                raise ProtocolError("groups that are none")
            if not all(isinstance(each, bytes) and each for each in groups):
                raise ProtocolError("groups that are none")
            return groups
        part, size = answer.get("part"), answer.get("of")
        if not isinstance(part, bytes) or not part or type(size) is not int:
            raise ProtocolError("a part of a group that is none")
        held += part
        if not len(held) <= size <= GROUP_BYTES_MAX:
            raise ProtocolError("a part of a group that is too long")
        if len(held) == size:
            return [bytes(held)]


def _held(given: Any) -> HeldCopy | None:
    """One of an answer; None: nothing is known of its end there yet."""
    try:
        epoch, session, tail, crc, members, line, first, prev_crc, size, whole, begun = given
        args = dict(zip(("e", "s", "T", "c"), (epoch, session, tail, crc), strict=True))
        number(args, "e", 1, U63), number(args, "s", 0, U64), number(args, "T", 0, U63)
        number(args, "c", 0, 2**32 - 1)
        args = {"f": first, "p": prev_crc, "b": size, "d": begun}
        number(args, "f", 1, U63), number(args, "p", 0, 2**32 - 1)
        number(args, "b", 0, U63), number(args, "d", 0, U63)
        if len(members) > MEMBERS_MAX or len(line) > LINE_MAX or type(whole) is not bool:
            raise RequestError("too much of it")
        ordinals = tuple(number({"m": each}, "m", 0, BROKERS_MAX) for each in members)
        parents = tuple(_parent(each, epoch) for each in line)
    except (RequestError, ValueError, TypeError) as error:
        raise ProtocolError(f"a generation that is none: {error}") from None
    ended = EndedGeneration(epoch, session, tail, crc, ordinals, parents)
    return HeldCopy(ended, first, prev_crc, size, whole, begun)


def _expired(given: Any) -> HeldCopy:
    """What is told of one that retention has removed."""
    try:
        epoch, tail = given
        number({"e": epoch}, "e", 1, U63), number({"T": tail}, "T", 1, U63)
    except (RequestError, ValueError, TypeError) as error:
        raise ProtocolError(f"a generation that expired, and is none: {error}") from None
    return HeldCopy(EndedGeneration(epoch, 0, tail, 0, (), ()), tail + 1, 0, 0, False, 0)


def _parent(given: Any, child: int) -> tuple[int, int, int]:
    token, epoch, tail = given
    args = {"t": token, "e": epoch, "T": tail}
    number(args, "t", TOKEN_MIN, TOKEN_MAX), number(args, "e", 1, child - 1)
    number(args, "T", 1, U63)
    return token, epoch, tail


Said = Mapping[int, Sequence[HeldCopy]]
"""By ordinal: what the processes of one token have said."""


def logs_of(token: int, said: Said) -> dict[int, EndedLog]:
    """By epoch: what all that was said comes to. Of two that say different things of one epoch the
    one counts which more say: a depot copies only what two say. What is left of a generation of
    which two say that retention has removed it needs no copy."""
    found: dict[int, EndedLog] = {}
    removed = Counter(
        held.generation.epoch for copies in said.values() for held in copies if held.expired
    )
    for epoch, voices in _voices(said).items():
        if removed[epoch] >= VOICES:
            continue
        best = max(voices, key=lambda each: (len(voices[each]), each.tail, each.header_crc))
        copies = voices[best]
        holders = frozenset(ordinal for ordinal, held in copies.items() if held.whole)
        size = max((held.bytes for held in copies.values() if held.whole), default=0)
        begun = {
            ordinal: held.begun
            for ordinal, all_of in said.items()
            for held in all_of
            if held.generation.epoch == epoch and held.begun
        }
        gid = Gid(Token(token), Epoch(epoch))
        found[epoch] = EndedLog(gid, size, frozenset(best.members), holders, begun)
    return found


def _voices(said: Said) -> dict[int, dict[EndedGeneration, dict[int, HeldCopy]]]:
    found: dict[int, dict[EndedGeneration, dict[int, HeldCopy]]] = {}
    for ordinal, copies in said.items():
        for held in copies:
            if (
                held.generation.tail and not held.expired
            ):  # A depot that has just begun can not say what it is.
                found.setdefault(held.generation.epoch, {}).setdefault(held.generation, {})
                found[held.generation.epoch][held.generation][ordinal] = held
    return found


def believed(
    epoch: int, said: Said, allowed: frozenset[int], voices: int
) -> tuple[EndedGeneration, dict[int, HeldCopy]] | None:
    """What so many different brokers say of an epoch, who are its members or allowed to speak, and
    what each of them has; None: not enough do."""
    for what, copies in _voices(said).get(epoch, {}).items():
        heard = {at: held for at, held in copies.items() if at in allowed or at in what.members}
        whole = {at: held for at, held in heard.items() if held.whole}
        if len(whole) >= voices:
            return what, whole
    return None
