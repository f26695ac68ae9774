"""The picture of the ring: every broker's part is there, and what nobody leads."""

from typing import Any

from barco.cli.shared.ring import COLUMNS, draw


def topology(leaders: list[int | None]) -> dict[str, Any]:
    tokens = [str(-(2**63) + 6148914691236517205 * index) for index in range(3)]
    return {
        "ringSize": 3,
        "slicesPerRange": 2,
        "ranges": [{"token": token, "leader": index} for index, token in enumerate(tokens)],
        "shards": [
            {
                "token": tokens[shard // 2],
                "slices": [shard % 2, shard % 2],
                "ordinal": leader,
                "up": leader is not None,
            }
            for shard, leader in enumerate(leaders)
        ],
    }


def test_every_part_is_drawn() -> None:
    picture = draw(topology([0, 0, 1, 1, 2, 2]), colour=False)
    assert all(f"broker {ordinal}" in picture for ordinal in range(3))
    counts = [picture.count(str(ordinal)) for ordinal in range(3)]
    assert min(counts) > 20 and max(counts) < 2 * min(counts)
    assert "." not in picture and "3 brokers, 6 shards" in picture
    assert max(map(len, picture.splitlines())) <= COLUMNS


def test_what_was_taken_over_and_what_nobody_leads() -> None:
    picture = draw(topology([1, None, 1, 1, 2, 2]), colour=False)
    assert picture.count(".") > 10 and picture.count("1") > picture.count("2")
    assert "\x1b[" in draw(topology([0] * 6), colour=True)
