"""The text exposition."""

from barco.workers.process.metrics import SERIES_MAX, exposition


def test_sums_types_and_names() -> None:
    text = exposition(
        {
            0: {"requests": 1, "connections": 2, "topics": 4, "connections_total": 7},
            1: {"requests": 2, "connections": 3, "topics": 5, "connections_total": 7},
        },
        workers=3,
        version="0.1.0",
    ).decode()
    assert "# TYPE barco_requests_total counter\nbarco_requests_total 3\n" in text
    assert "# TYPE barco_connections_open gauge\nbarco_connections_open 5\n" in text
    assert "barco_topics 5\n" in text and "barco_connections_total 14\n" in text
    assert "barco_workers 3\n" in text and "barco_workers_up 2\n" in text
    assert 'barco_build_info{version="0.1.0"} 1\n' in text
    assert text.endswith("\n")


def test_names_are_checked_and_bounded() -> None:
    stats = {f"n{n}": n for n in range(SERIES_MAX + 100)} | {"bad name": 1, 'x"y': 1, "": 1}
    text = exposition({0: stats}, workers=1, version="0").decode()
    assert "bad name" not in text and 'x"y' not in text
    assert text.count("# TYPE") <= SERIES_MAX + 3


def test_gossip_has_figures_of_its_own() -> None:
    text = exposition(
        {}, workers=1, version="1", gossip={"brokers_alive": 3, "messages_sent": 7, "unheard_of": 1}
    ).decode()
    assert "barco_gossip_brokers_alive 3\n" in text
    assert "# TYPE barco_gossip_messages_sent_total counter\n" in text
    assert "barco_gossip_messages_sent_total 7\n" in text
    assert "unheard_of" not in text
