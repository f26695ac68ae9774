"""What a broker answers is looked at before anything is made of its size."""

from typing import Any

import pytest

from barco.cli.shared.routes import cut_of
from barco.cluster.ring.cut import Cut
from barco.errors import ProtocolError


def test_a_cut_as_it_came() -> None:
    assert cut_of({"ringSize": 3, "slicesPerRange": 8}) == Cut(3, 8)


@pytest.mark.parametrize(
    "told", [{}, {"ringSize": 3}, {"ringSize": None, "slicesPerRange": 8}]
    + [{"ringSize": each, "slicesPerRange": 8} for each in (0, -3, 10**15, "x")]
    + [{"ringSize": 3, "slicesPerRange": each} for each in (0, -8, 2**40)],
)  # fmt: skip
def test_one_that_can_not_be(told: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        cut_of(told)
