"""What does TLS among brokers cost: a ring with it against one without, in turn."""

import json
import urllib.request
from typing import Any

import pytest

from bench.cases import KiB
from bench.harness import LAB, METER, SETTINGS, ratios
from bench.ring import SINGLE, Ring, Work, anywhere, bodies, interleave_work, ring, work

ROWS = ("ring-tls", "ring-tls-single")
NDJSON_CONNECTIONS, SINGLE_CONNECTIONS = 12, 64
LOADS: dict[str, tuple[int, dict[str, Any]]] = {
    ROWS[0]: (NDJSON_CONNECTIONS, bodies(256 * KiB)),
    ROWS[1]: (SINGLE_CONNECTIONS, SINGLE),
}
CASES = tuple(f"{row} {how}" for row in ROWS for how in ("plain", "tls"))


def _sealed(brokers: Ring) -> bool:
    """What the first broker says of its links."""
    with urllib.request.urlopen(f"http://{brokers.hosts[0]}:9250/status", timeout=5) as answer:
        return json.load(answer)["mutualTls"] is not None


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Work]]:
    """Both rings stand all the time, one works. Keys of all ranges at any broker: each event is
    handed over with two thirds of probability, and copied twice."""
    figures = {f"{row}{more}" for row in ROWS for more in ("", "-wall")}
    with LAB.question(*figures), ring() as plain, ring(mutual=True) as sealed:
        assert (_sealed(plain), _sealed(sealed)) == (False, True)

        def loaded(brokers: Ring, row: str) -> Work:
            connections, options = LOADS[row]
            return work(brokers, anywhere(brokers), connections, **options)

        done = interleave_work(
            {
                f"{row} {how}": lambda brokers=brokers, row=row: loaded(brokers, row)
                for row in ROWS
                for how, brokers in (("plain", plain), ("tls", sealed))
            },
            SETTINGS.rounds,
        )
        for row in ROWS:
            note = " against ".join(done[f"{row} {how}"][-1].words() for how in ("tls", "plain"))
            for more, figure in (("", "per_core"), ("-wall", "per_second")):
                with_, without = (
                    [getattr(run, figure) for run in done[f"{row} {how}"]]
                    for how in ("tls", "plain")
                )
                LAB.record(f"{row}{more}", ratios(with_, without), note=note)
        return done


@pytest.mark.benchmark(group="TLS among brokers, CPU of all an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_ring_tls(benchmark: Any, runs: dict[str, list[Work]], case: str) -> None:
    """Each ring, by load."""
    METER.replay(benchmark, [1 / run.per_core for run in runs[case]])
