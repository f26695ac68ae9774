"""Which versions two brokers have in common."""

from typing import Any

import pytest

from barco.protocol.versions import BETWEEN, SPOKEN, in_common, told


def test_one_version_has_all_in_common_with_itself() -> None:
    assert {name: in_common(told(), name) for name in SPOKEN} == {
        name: newest for name, (_, newest) in SPOKEN.items()
    }
    assert set(BETWEEN) < SPOKEN.keys()


@pytest.mark.parametrize(
    ("given", "common"),
    [
        ([5, 6], 6),
        ([6, 9], 6),
        ([3, 6], 6),
        ([7, 9], None),
        ([3, 5], None),
        ([6], None),
        ("6", None),
        ([True, 6], None),
        (None, None),
    ],
)
def test_the_newest_that_both_know(given: Any, common: int | None) -> None:
    assert SPOKEN["link"] == (6, 6)
    assert in_common({"link": given}, "link") == common
