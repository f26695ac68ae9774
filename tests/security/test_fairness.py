"""An honest producer beside floods: bounded here, full-size under `-m chaos`."""

import pytest
from attacked import AttackedBroker
from honest import beside

SMALL = {"refusals": 400, "resets": 2000, "long_reads": 100}
FULL = {"refusals": 2000, "resets": 35_000, "long_reads": 2000}


@pytest.mark.parametrize("name", SMALL)
def test_an_honest_client_beside_a_flood(attacked: AttackedBroker, name: str) -> None:
    beside(attacked, name, 3.0, SMALL[name])


@pytest.mark.chaos
@pytest.mark.parametrize("name", FULL)
def test_an_honest_client_beside_a_flood_of_thousands(attacked: AttackedBroker, name: str) -> None:
    beside(attacked, name, 20.0, FULL[name])
