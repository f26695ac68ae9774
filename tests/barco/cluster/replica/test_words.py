"""Whose word is enough when a generation's end is known to one member alone (P5)."""

import pytest
from lab import FOUR, SEALED, THREE, A, C, Lab

from barco.model.generation import Identity, Kind, Successor
from barco.protocol.replication import Decided, Unknown

NEW = Identity(C.ordinal, b"n" * 16)
"""The disk that takes the place of C's."""
END = Decided(THREE.gid, Successor(9, Kind.RELEAD, (FOUR,)), THREE.session)


def heard(lab: Lab) -> bool:
    return lab.replica._held[THREE.gid].decided == END.value


def told(third: Identity, replaces: bytes) -> Lab:
    """A alone says how it ended, and the third is there."""
    lab = Lab(SEALED)
    lab.ping(A)
    lab.ping(third, session=6, replaces=replaces)
    lab.hear(A, END)
    assert not heard(lab), "the third may yet say something else"
    return lab


def test_one_is_enough_where_the_third_has_lost_its_disk_and_knows_nothing() -> None:
    """It was the only other one that knew: nobody would ever say it a second time."""
    lab = told(NEW, C.disk_uuid)
    lab.hear(NEW, Unknown(THREE.gid), 6)
    assert heard(lab)


@pytest.mark.parametrize(("third", "replaces"), [(C, b""), (NEW, b"")])
def test_one_that_has_its_disk_will_hear_of_it(third: Identity, replaces: bytes) -> None:
    """Nor is one believed to stand in for a disk that does not say so."""
    lab = told(third, replaces)
    lab.hear(third, Unknown(THREE.gid), 6)
    assert not heard(lab)


def test_what_the_new_disk_knows_counts() -> None:
    """It may have been told meanwhile, and then one of the two others lies."""
    lab = told(NEW, C.disk_uuid)
    lab.hear(NEW, Decided(THREE.gid, Successor(8, Kind.RELEAD, (FOUR,)), THREE.session), 6)
    assert not heard(lab)
    lab.hear(A, END)
    assert not heard(lab)
