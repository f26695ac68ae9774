"""Partition key to token: Murmur3 x64-128, seed 0, first half, with Cassandra's signed tail.

Bytes after the last whole 16 are sign-extended before they are mixed in, so the token differs from
plain Murmur3 for keys with a byte >= 0x80 there. Those few are hashed here; all others by mmh3.
"""

import mmh3

from barco.types import Token

TOKEN_MIN = Token(-(2**63))
TOKEN_MAX = Token(2**63 - 1)

_MASK = 2**64 - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def token_of(key: bytes) -> Token:
    """The point of the ring that the key hashes to."""
    tail = key[len(key) & ~15 :]
    if tail.isascii():
        return Token(mmh3.hash64(key, 0, x64arch=True, signed=True)[0])
    return Token(_signed(_hash_signed_tail(key)))


def _hash_signed_tail(key: bytes) -> int:
    h1 = h2 = 0
    whole = len(key) & ~15
    for at in range(0, whole, 16):
        k1 = int.from_bytes(key[at : at + 8], "little")
        k2 = int.from_bytes(key[at + 8 : at + 16], "little")
        h1 ^= _mix1(k1)
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix2(k2)
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    if len(key) - whole > 8:
        h2 ^= _mix2(_tail_word(key[whole + 8 :]))
    if len(key) > whole:
        h1 ^= _mix1(_tail_word(key[whole : whole + 8]))
    h1 ^= len(key)
    h2 ^= len(key)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_finish(h1) + _finish(h2)) & _MASK


def _tail_word(tail: bytes) -> int:
    word = 0
    for place, byte in enumerate(tail):
        word ^= (byte - 256 if byte >= 0x80 else byte) << (8 * place)
    return word & _MASK


def _mix1(k: int) -> int:
    return _rotate(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mix2(k: int) -> int:
    return _rotate(k * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & _MASK


def _finish(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
