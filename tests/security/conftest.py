"""One broker for each engine and module; after every attack it has to be as well as before."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

from attacked import AttackedBroker


@pytest.fixture(scope="module", params=["io_uring", "epoll"])
def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttackedBroker]:
    """A broker with two workers."""
    broker = AttackedBroker(tmp_path_factory.mktemp("attacked") / "data", engine=request.param)
    broker.begin()
    yield broker
    broker.end()


@pytest.fixture(autouse=True)
def _unharmed(attacked: AttackedBroker) -> Iterator[None]:
    yield
    attacked.check()
