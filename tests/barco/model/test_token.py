"""Tokens are PolarStreams': the published hashes, and the signed tail of Cassandra's."""

import random

import pytest

from barco import _native
from barco.model.token import _hash_signed_tail, _signed, token_of

UNSIGNED = {
    b"": 0,
    b"0": 0x2AC9DEBED546A380,
    b"01": 0x649E4EAA7FC1708E,
    b"012": 0xCE68F60D7C353BDB,
    b"0123": 0x0F95757CE7F38254,
    b"01234": 0x0F04E459497F3FC1,
    b"012345": 0x88C0A92586BE0A27,
    b"0123456": 0x13EB9FB82606F7A6,
    b"01234567": 0x8236039B7387354D,
    b"012345678": 0x4C1E87519FE738BA,
    b"0123456789": 0x3F9652AC3EFFEB24,
    b"01234567890": 0x3F33760DED9006C6,
    b"012345678901": 0xAED70A6631854CB1,
    b"0123456789012": 0x8A299A8F8E0E2DA7,
    b"01234567890123": 0x624B675C779249A6,
    b"012345678901234": 0xA4B203BB1D90B9A3,
    b"0123456789012345": 0xA3293AD698ECB99A,
    b"01234567890123456": 0xBC740023DBD50048,
    b"012345678901234567": 0x3FE5AB9837D25CDD,
    b"0123456789012345678": 0x2D0338C1CA87D132,
    b"hello": 0xCBD8A7B341BD9B02,
    b"hello, world": 0x342FAC623A5EBC8E,
    b"19 Jan 2038 at 3:14:07 AM": 0xB89E5988B737AFFC,
    b"The quick brown fox jumps over the lazy dog.": 0xCD99481F9EE902C9,
}
SIGNED = {
    b"abcd": -5153323217664422577,
    b"wxyz": 6541399000449243469,
    b"mmmm": 1406774400723249678,
    b"Hashing a value": 3002999691413861203,
    b"a": -8839064797231613815,
    b"hui": 7851606034017063987,
    bytes(range(256)) * 4: 7627370222079200297,
    bytes.fromhex("00104327529fb645dd00b883ec39ae448bb800000400066a6b00"): -9223371632693506265,
    "é".encode(): 5461403030378599040,
    "日本".encode(): -7507319893842418264,
    "ÿ".encode(): 8918536574952381208,
}
VECTORS = {key: _signed(word) for key, word in UNSIGNED.items()} | SIGNED


@pytest.mark.parametrize("key", VECTORS, ids=lambda key: key[:20].hex() or "empty")
def test_published_vectors(key: bytes) -> None:
    """Python, its signed-tail path and the C core all give the published token."""
    assert token_of(key) == VECTORS[key]
    assert _signed(_hash_signed_tail(key)) == VECTORS[key]
    assert _native.token(key) == VECTORS[key]


def test_python_and_c_agree() -> None:
    """Random keys of every tail length hash alike in both."""
    chance = random.Random(7)
    for length in range(64):
        for _ in range(8):
            key = chance.randbytes(length)
            assert token_of(key) == _native.token(key)
