"""One broker for each engine and module; after every attack it has to be as well as before."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

from attacked import AttackedBroker

ENGINES = ("io_uring", "epoll")
SEALED = {f"test_{each}" for each in ("bodies", "bombs", "groups", "heads", "hosts", "writes")}
"""What these do is done to a broker in plain on io_uring, and to one under TLS on epoll: parsers
know neither. Floods have their own measure: bounds of handshakes, which tests/integration has."""

NOT_SEALED = ("test_a_half_closed_client_gets_its_answers", "test_configured_names")
"""Python's ssl reads nothing after its own end (test_tls has that); a broker of its own."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Which brokers a test attacks."""
    if "attacked" in metafunc.fixturenames:
        name = metafunc.module.__name__.rpartition(".")[2]
        sealed = name in SEALED and metafunc.function.__name__ not in NOT_SEALED
        kinds = ("io_uring", "tls") if sealed else ENGINES
        metafunc.parametrize("attacked", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttackedBroker]:
    """A broker with two workers."""
    where = tmp_path_factory.mktemp("attacked")
    if request.param == "tls":
        broker = AttackedBroker.sealed(where)
    else:
        broker = AttackedBroker(where / "data", engine=request.param)
    broker.begin()
    yield broker
    broker.end()


@pytest.fixture(autouse=True)
def _unharmed(attacked: AttackedBroker) -> Iterator[None]:
    yield
    attacked.check()
