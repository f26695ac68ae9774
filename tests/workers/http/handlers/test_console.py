"""The console's files, health and figures, over the in-memory twin and as they lie on the disk."""

import re
from pathlib import Path

from twin import Broker, run

import barco
from barco.workers.http.handlers.console import KINDS, POLICY
from barco.workers.process.hour import AMOUNTS, RATES, STEP_SECONDS
from barco.workers.process.stages import BOUNDS_US, STAGES

FOLDER = Path(barco.__file__).parent / "console"
FILES = [path for path in FOLDER.iterdir() if path.is_file()]
FIRST_PAINT_BYTES_MAX = 300_000


@run
async def test_who_types_an_address_finds_the_console() -> None:
    answer = await Broker().request("GET", "/")
    assert (answer.status, answer.headers["location"]) == (302, "/console")


@run
async def test_every_file_is_served_under_the_policy() -> None:
    broker = Broker()
    names = [path.name for path in FOLDER.iterdir() if path.suffix in KINDS]
    assert {"index.html", "console.js", "console.css"} <= set(names)
    for path, name in [("/console", "index.html"), *((f"/console/{n}", n) for n in names)]:
        answer = await broker.request("GET", path)
        assert answer.status == 200 and answer.body == (FOLDER / name).read_bytes()
        assert answer.headers["content-type"] == KINDS[Path(name).suffix]
        assert answer.headers["content-security-policy"] == POLICY
        again = await broker.request("GET", path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")


@run
async def test_nothing_else_of_the_disk_is_a_file_of_it() -> None:
    for name in ("__init__.py", "..", "%2e%2e%2fconfig.py", "%2fetc%2fpasswd", "x.js", "a%00"):
        answer = await Broker().request("GET", f"/console/{name}")
        assert answer.status == 404, name


def test_the_page_asks_nobody_else_and_makes_no_markup_of_texts() -> None:
    """What the policy would stop in a browser does not stand in the files either."""
    total = 0
    for path in FILES:
        text = path.read_text("utf-8")
        total += len(text)
        known = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?:|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", known
        )
        assert not re.search(r"\sstyle=|\son[a-z]+=|javascript:|@import|url\(", known), path
    assert total <= FIRST_PAINT_BYTES_MAX


def test_every_file_that_is_named_is_there() -> None:
    for path in FILES:
        for name in re.findall(r'"/console/([^"]*)"', path.read_text("utf-8")):
            assert (FOLDER / name).is_file(), (path, name)


@run
async def test_health_in_words() -> None:
    answer = await Broker().request("GET", "/v1/health")
    assert answer.status == 200
    assert answer.json["headline"].startswith("All slices can be written; a single broker")
    assert answer.json["wrong"] == []
    (note,) = answer.json["notes"]
    assert "runs on memory: a twin for tests" in note


@run
async def test_figures_of_a_broker_are_added_up() -> None:
    broker = Broker(workers=2)
    for number, reactor in enumerate(broker.reactors):
        told_here = {"events": number + 1, "storage_free_bytes": 7, "not_shown": 1}
        reactor.stats = lambda told_here=told_here: told_here
    told = (await broker.request("GET", "/v1/figures")).json
    assert told["at"] == broker.reactors[0].clock_us
    (own,) = told["brokers"]
    assert (own["ordinal"], own["workers"], own["silent"]) == (0, 2, 0)
    assert own["figures"]["events"] == 3
    assert own["figures"]["storage_free_bytes"] == 7, "all share the disk"
    assert "not_shown" not in own["figures"]


@run
async def test_a_process_that_is_silent_is_counted_and_not_waited_for() -> None:
    broker = Broker(workers=2)
    broker.kill(1)
    (own,) = (await broker.request("GET", "/v1/figures", worker=0)).json["brokers"]
    assert (own["workers"], own["silent"]) == (1, 1)


@run
async def test_stages_of_all_brokers_and_of_each_of_late() -> None:
    broker = Broker(workers=2)
    for number, reactor in enumerate(broker.reactors):
        at = BOUNDS_US.index(1024) + 1  # 1,024 µs or more, less than 1,280; one is in the next.
        recent = {"write": (0, [0] * at + [10 * (number + 1), number]), "whole": (0, [])}
        reactor.stats = lambda recent=recent: {"events": 1, "stages_recent": recent}
    told = (await broker.request("GET", "/v1/figures")).json
    (own,) = told["brokers"]
    assert own["stages"] == told["stages"] and list(own["stages"]) == ["write", "whole"]
    write = own["stages"]["write"]
    assert write["count"] == 31
    assert 0.001024 <= write["p50"] <= 0.00128 < write["p99"] <= 0.001536
    assert own["stages"]["whole"] == {"count": 0, "p50": None, "p99": None}


def step(number: int, **told: float) -> list[float | None]:
    """As a process tells one."""
    named = [told.get(name, 0) for name in (*RATES, *AMOUNTS)]
    return [number, *named, *(told.get(name) for name in STAGES)]


def remember(broker: Broker, *of_each: list[list[float | None]]) -> None:
    """What each process says of the last hour."""
    for service, steps in zip(broker.services, of_each, strict=True):

        async def told(_: object, steps: list[list[float | None]] = steps) -> object:
            return steps

        assert service is not None
        service.extend({"hour": told})


@run
async def test_an_hour_of_all_processes_step_by_step() -> None:
    broker = Broker(workers=2)
    remember(
        *(broker, [step(7, events=1, storage_free_bytes=5), step(8, events=2, write=0.004)]),
        [step(8, events=10, storage_free_bytes=6, write=0.001), step(9, process_resident_bytes=3)],
    )
    told = (await broker.request("GET", "/v1/figures/hour")).json
    assert told["stepSeconds"] == STEP_SECONDS and told["silent"] == 0
    assert told["at"] == [number * STEP_SECONDS * 1_000_000 for number in (7, 8, 9)]
    assert told["figures"]["events"] == [1, 12, 0]
    assert told["figures"]["storage_free_bytes"] == [5, 6, 0], "all share the disk"
    assert told["figures"]["process_resident_bytes"] == [0, 0, 3]
    assert told["stages"]["write"] == [None, 0.004, None], "that of the slower one"
    assert list(told["figures"]) == [*RATES, *AMOUNTS] and list(told["stages"]) == list(STAGES)
    assert (await broker.request("GET", "/v1/figures/hour", {"broker": 0})).json == told


@run
async def test_an_hour_of_a_broker_that_is_none() -> None:
    for given, status in (("7", 404), ("x", 400), ("", 400)):
        answer = await Broker().request("GET", "/v1/figures/hour", {"broker": given})
        assert answer.status == status, given


@run
async def test_who_is_silent_of_the_last_hour_is_counted() -> None:
    broker = Broker(workers=2)
    remember(broker, [step(7, events=1)], [step(7, events=2)])
    broker.kill(1)
    told = (await broker.request("GET", "/v1/figures/hour", worker=0)).json
    assert told["silent"] == 1 and told["figures"]["events"] == [1]
