"""What does it cost that each request has to show whose it is?"""

from typing import Any

import pytest

import barco
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add
from bench.cases import single
from bench.harness import LAB, METER, interleave, ratios, report
from bench.load import Load
from bench.servers import JSON, MINIMAL, TOPIC, Broker, scratch_dir

CASES = ("access off", "access on", "access on, a quota of everything")
ROOT, TOKEN, BOUND = (f"barco_{letter * 43}" for letter in "rtb")


@pytest.fixture(scope="module")
def runs(broker: Broker) -> dict[str, list[Load]]:
    """All cases, in turn: two brokers, of which one asks."""
    with LAB.question("access", "access-quota"), scratch_dir("access") as path:
        data_dir = path / "data"
        data_dir.mkdir(mode=0o700)
        add(data_dir / NAME, "root", hash_of(ROOT).hex())
        asking = Broker(data_dir, access_required=True).start()
        try:
            endpoint = f"127.0.0.1:{asking.ready['ports']['discovery']}"
            with barco.Admin(endpoint, token=ROOT) as root:
                root.create_topic(TOPIC.replace("{topic}", "0"))
                grants = ["produce:other", "produce:*"]
                root.set_user("free", token=TOKEN, grants=grants)
                much = {"requests_per_second": 2**40, "bytes_per_second": 2**40}
                more = {"connections": 10_000, "topics": 5, "groups": 5}
                root.set_user("bound", token=BOUND, grants=grants, **much, **more)
            done = interleave(
                {
                    CASES[0]: lambda: single(broker),
                    CASES[1]: lambda: single(asking, header=shown(TOKEN)),
                    CASES[2]: lambda: single(asking, header=shown(BOUND)),
                }
            )
        finally:
            asking.stop()
        off, on, bound = ([run.events_per_core for run in done[name]] for name in CASES)
        note = f"{on[-1]:,.0f} against {off[-1]:,.0f} events/s/core"
        LAB.record("access", ratios(on, off), note=note)
        LAB.record("access-quota", ratios(bound, off), note=f"{bound[-1]:,.0f} events/s/core")
        return done


def shown(token: str) -> list[str]:
    """As every request has it."""
    return [JSON, MINIMAL, f"Authorization: Bearer {token}"]


@pytest.mark.benchmark(group="access, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_access(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event."""
    report(benchmark, runs[case])
