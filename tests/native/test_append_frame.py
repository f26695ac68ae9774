"""APPEND and APPENDED: the core and Python agree, on the bytes of docs/protocol.md and on any."""

import random
import re
import struct
from pathlib import Path
from typing import Any

import barco_faces
import pytest
from crc32c import crc32c

from barco.errors import ProtocolError
from barco.model.generation import Gid, GroupHead
from barco.protocol.append_frame import Append, Appended, pack, unpack
from barco.types import Epoch, Token
from barco.workers.replication import wire

U63, U64 = 2**63 - 1, 2**64 - 1
PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"

APPEND = Append(Gid(Token(-2), Epoch(7)), U64, GroupHead(42, 0x01020304, 0xA0B0C0D0, 8192), 40)
APPENDED = Appended(Gid(Token(-2), Epoch(7)), 42, U64)
"""What the bytes in docs/protocol.md say."""

COMMITTED_AT, GSEQ_AT, EPOCH_AT = 40, 32, 16


def number(chance: random.Random, low: int, high: int) -> int:
    """Any, the first and the last ones more often than others."""
    return (
        chance.choice((low, high, low + 1)) if chance.random() < 0.4 else chance.randint(low, high)
    )


def some_gid(chance: random.Random) -> Gid:
    return Gid(Token(number(chance, -(2**63), U63)), Epoch(number(chance, 1, U63)))


def some_append(chance: random.Random) -> Append:
    words = [number(chance, 0, 2**32 - 1) for _ in range(3)]
    head = GroupHead(number(chance, 1, U63), *words)
    return Append(some_gid(chance), number(chance, 0, U64), head, number(chance, 0, U63))


def by_core(body: bytes) -> Append | None:
    """What the core reads of an APPEND."""
    if (found := barco_faces.append_parse(body)) is None:
        return None
    token, epoch, session, gseq, committed, prev_crc, header_crc, size = found
    head = GroupHead(gseq, prev_crc, header_crc, size)
    return Append(Gid(token, epoch), session, head, committed)


def by_python(body: bytes) -> Append | Appended | None:
    try:
        found = wire.decode(body)
    except ProtocolError:
        return None
    assert isinstance(found, (Append, Appended))
    return found


def sealed(body: bytes | bytearray) -> bytes:
    """With the checksum that its bytes have: what a wrong writer may have written."""
    return bytes(body[:-4]) + struct.pack("<I", crc32c(body[:-4]))


def shown(name: str) -> bytes:
    """The bytes of this message in docs/protocol.md."""
    found = re.search(rf"(?m)^{name} +((?:[0-9a-f]{{2}} ?|\n +)+)$", PAGE.read_text("utf-8"))
    assert found, f"no bytes of {name}"
    return bytes.fromhex(found[1])


def test_both_hold_to_the_page() -> None:
    append, appended = shown("APPEND"), shown("APPENDED")
    assert (len(append), len(appended)) == (64, 48)
    assert pack(APPEND) == append and unpack(append) == APPEND == by_core(append)
    assert pack(APPENDED) == appended and unpack(appended) == APPENDED
    core = barco_faces.appended_pack(*APPENDED.gid, APPENDED.session, APPENDED.gseq)
    assert core == wire.HEAD.pack(48, 0) + appended == wire.encode(APPENDED)


@pytest.mark.parametrize("seed", range(4))
def test_both_read_what_the_other_writes(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(1000):
        append = some_append(chance)
        assert by_core(pack(append)) == append == by_python(pack(append))
        gid, session, gseq = some_gid(chance), number(chance, 0, U64), number(chance, 0, U63)
        appended = Appended(gid, gseq, session)
        core = barco_faces.appended_pack(*gid, session, gseq)
        assert core == wire.encode(appended)
        assert unpack(core[wire.HEAD.size :]) == appended
        assert barco_faces.append_parse(core[wire.HEAD.size :]) is None


@pytest.mark.parametrize("message", [APPEND, APPENDED], ids=["APPEND", "APPENDED"])
def test_no_bit_may_flip_and_no_byte_be_missing(message: Append | Appended) -> None:
    whole = pack(message)
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError):
            wire.decode(bytes(changed))
        assert by_core(changed) is None
    for size in range(2 * len(whole) + 1):
        if size != len(whole):
            cut = (whole + whole)[:size]
            with pytest.raises(ProtocolError):
                wire.decode(cut)
            assert by_core(cut) is None
            if size > 4:
                assert by_python(sealed(cut)) is by_core(sealed(cut)) is None


def changed(body: bytes, at: int, value: int, size: int = 8) -> bytes:
    """With something else in a field, under a right checksum."""
    return sealed(body[:at] + value.to_bytes(size, "little") + body[at + size :])


WRONG_APPENDS: list[Any] = [
    *((EPOCH_AT, value) for value in (0, U63 + 1, U64)),
    *((GSEQ_AT, value) for value in (0, U63 + 1, U64)),
    *((COMMITTED_AT, value) for value in (U63 + 1, U64)),
    *((1, kind, 1) for kind in (0, 2, 3, 255)),
    *((0, mark, 1) for mark in (0, 0xC0, 0x80)),
    *((byte, 1, 1) for byte in (2, 3, 56, 57, 58, 59)),
]
WRONG_APPENDEDS: list[Any] = [
    *((EPOCH_AT, value) for value in (0, U63 + 1, U64)),
    *((GSEQ_AT, value) for value in (U63 + 1, U64)),
    *((1, kind, 1) for kind in (0, 1, 3, 255)),
    *((0, mark, 1) for mark in (0, 0xC0, 0x80)),
    *((byte, 1, 1) for byte in (*range(2, 8), *range(40, 44))),
]


@pytest.mark.parametrize("field", WRONG_APPENDS)
def test_an_append_that_holds_what_it_can_not(field: Any) -> None:
    body = changed(pack(APPEND), *field)
    assert by_python(body) is by_core(body) is None


@pytest.mark.parametrize("field", WRONG_APPENDEDS)
def test_an_appended_that_holds_what_it_can_not(field: Any) -> None:
    assert by_python(changed(pack(APPENDED), *field)) is None


def test_nothing_is_stable_yet_and_nobody_began() -> None:
    """An APPENDED of gseq 0, or of session 0, is one."""
    for message in (Appended(Gid(Token(0), Epoch(1)), 0), Appended(Gid(Token(0), Epoch(1)), 0, 3)):
        assert unpack(pack(message)) == message


@pytest.mark.parametrize("seed", range(4))
def test_both_take_the_same(seed: int) -> None:
    """Anything in any field, under a right checksum."""
    chance = random.Random(seed)
    taken = 0
    for _ in range(2000):
        body = bytearray(pack(some_append(chance)))
        for _ in range(chance.randrange(3)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        found = by_python(sealed(body))
        assert by_core(sealed(body)) == (found if isinstance(found, Append) else None)
        taken += found is not None
    assert 400 < taken < 1900
