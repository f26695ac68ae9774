"""What a file changes for a broker that runs."""

import pytest

from barco.config import Config
from barco.errors import ConfigError
from barco.supervisor.sources.changes import Changes, changes

THREE = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
RUNNING = Config().override("cluster", brokers=THREE)


def test_nothing() -> None:
    assert changes(RUNNING, THREE, RUNNING) == Changes(added=False, later=())


def test_the_log_is_taken_up_at_once() -> None:
    found = RUNNING.override("log", level="debug", format="text")
    assert changes(RUNNING, THREE, found) == Changes(added=False, later=())


def test_a_longer_list_is_a_wish_once() -> None:
    four = (*THREE, "127.0.0.4")
    found = RUNNING.override("cluster", brokers=four)
    assert changes(RUNNING, THREE, found) == Changes(added=True, later=())
    assert changes(RUNNING, four, found) == Changes(added=False, later=())


def test_what_counts_at_the_next_start_is_named() -> None:
    found = RUNNING.override("cluster", brokers=("127.0.0.1", "127.0.0.9", "127.0.0.3"))
    found = found.override("topics", retention_hours=1).override("broker", nice=3)
    later = ("cluster.brokers (broker 1 at 127.0.0.9)", "broker.nice", "topics.retention_hours")
    assert changes(RUNNING, THREE, found) == Changes(added=False, later=later)


def test_a_shorter_list_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"lists 3 brokers, and 4 before: .*drain.*barco scale"):
        changes(RUNNING, (*THREE, "127.0.0.4"), RUNNING)
