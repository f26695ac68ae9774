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
    shard_endpoints=["127.0.0.1:9300", "127.0.0.1:9301"],
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
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WorkerOptions.from_json(text)
