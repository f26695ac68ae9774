"""The driver, before it takes part."""

from types import SimpleNamespace

from barco.cluster.core import Settings
from barco.model.generation import genesis
from barco.workers.replication.driver import Driver, identity


def test_siblings_may_ask_before_it_has_started():
    """Its socket is open a moment earlier: /status of the whole broker failed on it."""
    settings = Settings(me=identity(0, "ab" * 16), session=7, ranges=(genesis(0, 100, (0, 1, 2)),))
    driver = Driver(
        settings,
        {},
        reactor=SimpleNamespace(),
        store=SimpleNamespace(lineage=None),
        bulk=SimpleNamespace(),
        group_bytes_max=4096,
        **dict.fromkeys(("on_lead", "on_follow", "on_stop", "fatal"), lambda *_: None),
    )
    assert driver.status() == {"role": "starting", "catchingUp": True, "uncleanEnds": 0}
    assert not driver.readable() and not driver.serves_consumers()
    assert driver.stats()["replicas_leading"] == 0
