"""What is told of the counters of a broker's workers."""

import re

from barco.workers.process.metrics import SERIES_MAX, exposition
from barco.workers.process.stages import BOUNDS_US, STAGES


def test_sums_types_and_names() -> None:
    text = exposition(
        {
            0: {"requests": 1, "connections": 2, "topics": 4, "connections_total": 7},
            1: {"requests": 2, "connections": 3, "topics": 5, "connections_total": 7},
        },
        workers=3,
        about={"version": "0.1.0"},
    ).decode()
    assert "# TYPE barco_requests_total counter\nbarco_requests_total 3\n" in text
    assert "# TYPE barco_connections_open gauge\nbarco_connections_open 5\n" in text
    assert "barco_topics 5\n" in text and "barco_connections_total 14\n" in text
    assert "barco_workers 3\n" in text and "barco_workers_up 2\n" in text
    assert 'barco_build_info{version="0.1.0"} 1\n' in text
    assert text.endswith("\n") and "# EOF" not in text and "info\n" not in text


def test_names_are_checked_and_bounded() -> None:
    stats = {f"n{n}": n for n in range(SERIES_MAX + 100)} | {"bad name": 1, 'x"y': 1, "": 1}
    text = exposition({0: stats}, workers=1, about={"version": "0"}).decode()
    assert "bad name" not in text and 'x"y' not in text
    assert text.count("# TYPE") <= SERIES_MAX + 3


def test_gossip_has_figures_of_its_own() -> None:
    text = exposition(
        {},
        workers=1,
        about={"version": "1"},
        gossip={"brokers_alive": 3, "messages_sent": 7, "unheard_of": 1},
    ).decode()
    assert "barco_gossip_brokers_alive 3\n" in text
    assert "# TYPE barco_gossip_messages_sent_total counter\n" in text
    assert "barco_gossip_messages_sent_total 7\n" in text
    assert "unheard_of" not in text


def test_open_metrics_names_a_counter_without_its_ending() -> None:
    text = exposition(
        {0: {"requests": 1}}, workers=1, about={"version": "1"}, open_metrics=True
    ).decode()
    assert "# TYPE barco_requests counter\nbarco_requests_total 1\n" in text
    assert '# TYPE barco_build info\nbarco_build_info{version="1"} 1\n' in text
    assert text.endswith("\n# EOF\n")


def stages(**counts: list[int]) -> dict[str, tuple[int, list[int]]]:
    """As a reactor tells them: a stage that is not named has none."""
    return {name: (sum(counts.get(name, ())) * 100, counts.get(name, [])) for name in STAGES}


def test_histograms_of_all_workers_are_added_up() -> None:
    at = BOUNDS_US.index(16)  # What took less than 16 µs, and from 12 on.
    early, late = [0] * at + [2], [1] * at + [3, 5]
    text = exposition(
        {0: {"stages": stages(write=early)}, 1: {"stages": stages(write=late)}, 2: {"requests": 1}},
        workers=3,
        about={"version": "1"},
    ).decode()
    assert "# TYPE barco_produce_stage_seconds histogram\n" in text
    name = 'barco_produce_stage_seconds_bucket{stage="write",le="'
    assert f'{name}1.6e-05"}} {at + 5}\n' in text
    assert f'{name}3.2e-05"}} {at + 10}\n' in text
    assert f'{name}+Inf"}} {at + 10}\n' in text
    assert f'barco_produce_stage_seconds_count{{stage="write"}} {at + 10}\n' in text
    assert f'barco_produce_stage_seconds_sum{{stage="write"}} {(at + 10) * 100 / 1e6}\n' in text
    assert 'barco_produce_seconds_bucket{le="+Inf"} 0\n' in text
    assert 'stage="whole"' not in text


def test_the_buckets_of_a_histogram_are_few_and_only_grow() -> None:
    full = {name: (7, [1] * (len(BOUNDS_US) + 1)) for name in STAGES}
    text = exposition({0: {"stages": full}}, workers=1, about={"version": "1"}).decode()
    told = re.findall(r'\{stage="write",le="([^"]*)"\} (\d+)', text)
    assert len(told) == 22
    assert [float(bound) for bound, _ in told] == sorted(float(bound) for bound, _ in told)
    counts = [int(count) for _, count in told]
    assert counts == sorted(counts) and counts[-1] == len(BOUNDS_US) + 1
    for bound, count in told[:-1]:  # As many as have a bound of theirs that is no higher.
        assert int(count) == sum(each <= round(float(bound) * 1e6) for each in BOUNDS_US)


def test_counters_of_each_worker() -> None:
    stats = {1: {"requests": 2, "topics": 7}, 0: {"requests": 1, "topics": 7}}
    text = exposition(stats, workers=2, about={}, each=True).decode()
    assert 'barco_requests_total{worker="0"} 1\nbarco_requests_total{worker="1"} 2\n' in text
    assert 'barco_topics{worker="0"} 7\n' in text and "barco_requests_total 3" not in text
