"""What a worker is told at its start survives the way through one argument."""

import dataclasses
import json

import pytest

from barco.errors import ConfigError
from barco.model.options import WorkerOptions

OPTIONS = WorkerOptions(
    version="0.1.0",
    worker=1,
    workers=2,
    core=None,
    supervisor_pid=77,
    data_dir="/var/lib/bärco",
    cluster_uuid="a" * 32,
    disk_uuid="b" * 32,
    ordinal=0,
    slices_per_range=8,
    channel_fd=9,
    listeners={"produce": [10], "shard": [11]},
    bind="127.0.0.1",
    ports={"produce": 9251},
    shard_endpoints={0: "127.0.0.1:9300", 1: "127.0.0.1:9301"},
    memory_bytes=2**28,
    event_bytes_max=2**20,
    request_bytes_max=2**24,
    connections_max=10_000,
    auto_create=True,
    retention_hours=168,
    retention_bytes=0,
    segment_bytes=2**27,
)


def test_round_trip() -> None:
    text = OPTIONS.to_json()
    assert "\n" not in text
    assert WorkerOptions.from_json(text) == OPTIONS
    told = dataclasses.replace(OPTIONS, processes=OPTIONS.table)
    assert WorkerOptions.from_json(told.to_json()) == told


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        OPTIONS.worker = 0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "are not JSON"),
        ("[]", "are not a JSON object"),
        ("{}", "are incomplete"),
        (
            json.dumps(json.loads(OPTIONS.to_json()) | {"colour": 1}),
            "unknown worker option: colour",
        ),
        (
            json.dumps(json.loads(OPTIONS.to_json()) | {"processes": [{}]}),
            "an entry of a table has first, genesis, members, number, slices, token",
        ),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WorkerOptions.from_json(text)


def test_the_place_of_a_process() -> None:
    assert (OPTIONS.seat, OPTIONS.slices, OPTIONS.range_index) == (0, range(4, 8), 0)
    assert OPTIONS.held.members == (0,) and OPTIONS.peer == 1
    clustered = dataclasses.replace(
        OPTIONS,
        ordinal=1,
        worker=5,
        ring_size=3,
        brokers=["127.0.0.1", "127.0.0.2", "127.0.0.3"],
        shard_endpoints={each: f"127.0.0.2:{9300 + each}" for each in range(6)},
        replication_port=9256,
        shard_port=9300,
    )
    assert WorkerOptions.from_json(clustered.to_json()) == clustered
    # C of the range of broker 2, which comes two places before it.
    assert (clustered.seat, clustered.slices, clustered.range_index) == (2, range(4, 8), 2)
    assert clustered.held.token == clustered.placement.slice_bounds(2, 4)[0]
    assert clustered.held.members == (2, 0, 1)
    assert clustered.endpoint_at("127.0.0.3", 1) == "127.0.0.3:9301"
    assert clustered.peer < clustered.peers and OPTIONS.peer < OPTIONS.peers
