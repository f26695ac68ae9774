"""What two greetings settle about TLS."""

import pytest

from barco.errors import ProtocolError
from barco.protocol import door

NONCE = bytes(32)
ENDS: tuple[door.Tls, ...] = (None, False, True)


@pytest.mark.parametrize("one", ENDS)
@pytest.mark.parametrize("other", ENDS)
def test_both_ends_settle_the_same(one: door.Tls, other: door.Tls) -> None:
    first, second = door.added(NONCE, tls=one), door.added(NONCE, tls=other)
    sealed = {door.sealed(first, tls=other), door.sealed(second, tls=one)}
    assert sealed == {one is not None and other is not None}
    refused = [door.disagreement(first, tls=other), door.disagreement(second, tls=one)]
    if {one, other} == {None, True}:
        assert all(why is not None and "cluster.tls_required = false" in why for why in refused)
    else:
        assert refused == [None, None]


def test_a_greeting_without_tls_has_no_word_of_it() -> None:
    """Brokers of earlier versions take no name that they do not know."""
    assert door.added(NONCE, tls=None) == {door.NONCE: NONCE}


@pytest.mark.parametrize("word", [0, 1, None, "", b"", []])
def test_nothing_else_is_said_of_it(word: object) -> None:
    with pytest.raises(ProtocolError):
        door.without_nonce({door.NONCE: NONCE, door.TLS: word})
