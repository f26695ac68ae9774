"""Staged writes on the twin: what is committed appears once, and nothing else appears."""

import json
import random
import time
from typing import Any

import pytest
from twin import Answer, Broker, run

from barco import _native, limits
from barco.errors import BusyError
from barco.workers.storage.files.spool import StagedRecord
from barco.workers.writes.marks import MARK_BYTES, Mark, Marks, packed
from barco.workers.writes.staged import Piece, parts_of
from barco.workers.writes.staging import Staging

KIND = {"Content-Type": "application/vnd.barco.batch"}
JSON = {"Content-Type": "application/json"}


async def stage(
    broker: Broker, values: list[bytes], *, attempt: str = "a", slice: int = 0, seq: int = 0,
    writer: str = "q", batch: int = 0, worker: int = 0, topic: str = "t",
) -> Answer:  # fmt: skip
    query = {"topic": topic, "slice": slice, "attempt": attempt, "seq": seq}
    body = _native.batch_encode(values)
    path = f"/v1/writes/{writer}/{batch}/staged"
    return await broker.request("PUT", path, query, headers=KIND, body=body, worker=worker)


async def put(
    broker: Broker, state: str, attempts: list[str], rows: dict[str, dict[str, int]], *,
    writer: str = "q", batch: int = 0, worker: int = 0,
) -> Answer:  # fmt: skip
    body = json.dumps({"state": state, "attempts": attempts, "rows": rows}).encode()
    path = f"/v1/writes/{writer}/{batch}"
    return await broker.request("PUT", path, headers=JSON, body=body, worker=worker)


def stored(broker: Broker, slice: int = 0, topic: str = "t") -> list[bytes]:
    reactor = broker.reactors[broker.owner(slice)]
    chunks = reactor.chunks.get((topic, slice), [])
    return [value for chunk in chunks for _, _, _, value in _native.chunk_events(chunk)]


async def restart(broker: Broker, worker: int = 0) -> None:
    """Killed and started, as a worker starts."""
    broker.kill(worker)
    broker.start(worker)
    service = broker.services[worker]
    assert service is not None
    await service.staging.complete(await service.staging.recover())


@run
async def test_nothing_is_seen_before_the_commit() -> None:
    broker = Broker()
    assert (await stage(broker, [b"1", b"2"])).json == {"rows": 2, "duplicate": False, "slice": 0}
    assert (await stage(broker, [b"3"], seq=1)).json["rows"] == 1
    assert (await stage(broker, [b"lost"], attempt="b")).status == 200
    assert (await put(broker, "prepared", ["a"], {"t": {"0": 3}})).json["state"] == "prepared"
    assert stored(broker) == []
    answer = await put(broker, "committed", ["a"], {"t": {"0": 3}})
    assert answer.json["state"] == "committed", answer
    assert answer.json["committed"] == {"t": {"0": 3}}
    assert stored(broker) == [b"1", b"2", b"3"]
    assert not broker.spools[0].files


@run
async def test_a_commit_that_is_repeated_answers_the_same() -> None:
    broker = Broker()
    await stage(broker, [b"1"])
    first = await put(broker, "committed", ["a"], {"t": {"0": 1}})
    await restart(broker)
    again = await put(broker, "committed", ["a"], {"t": {"0": 1}})
    assert (first.status, first.json) == (again.status, again.json) == (200, first.json)
    assert (await put(broker, "prepared", ["a"], {"t": {"0": 1}})).status == 200
    assert stored(broker) == [b"1"]
    other = await put(broker, "committed", ["a"], {"t": {"0": 2}})
    assert other.status == 409


@run
async def test_a_batch_that_is_run_again_is_stored_once() -> None:
    """Driver and tasks start anew: other attempts, the same rows in another order."""
    broker = Broker()
    for number in range(3):
        await stage(broker, [b"1", b"2"], attempt=f"x{number}")
        await put(broker, "prepared", [f"x{number}"], {"t": {"0": 2}})
    for number in range(3):
        await stage(broker, [b"2", b"1"], attempt=f"y{number}")
        answer = await put(broker, "committed", [f"y{number}"], {"t": {"0": 2}})
        assert answer.json["state"] == "committed"
        assert stored(broker) == [b"2", b"1"]
    assert not broker.spools[0].files
    # An older batch of the same query is over as well.
    await stage(broker, [b"3"], attempt="z", batch=1)
    await put(broker, "committed", ["z"], {"t": {"0": 1}}, batch=1)
    await stage(broker, [b"1", b"2"], attempt="late")
    await put(broker, "committed", ["late"], {"t": {"0": 2}})
    assert stored(broker) == [b"2", b"1", b"3"]


@run
async def test_repeated_and_missing_pieces() -> None:
    broker = Broker()
    await stage(broker, [b"1"])
    assert (await stage(broker, [b"1"])).json == {"rows": 0, "duplicate": True, "slice": 0}
    gap = await stage(broker, [b"3"], seq=2)
    assert gap.status == 409 and gap.json["expectedSeq"] == 1
    wrong = await put(broker, "prepared", ["a"], {"t": {"0": 2}})
    assert wrong.status == 409 and "not 2" in wrong.json["detail"]
    assert (await put(broker, "prepared", ["b"], {"t": {"0": 1}})).status == 409
    assert (await put(broker, "committed", ["a", "b"], {"t": {"1": 1}})).status == 409
    assert (await put(broker, "committed", ["a"], {"t": {"0": 1}}, writer="r")).status == 409
    assert (await put(broker, "prepared", ["a"], {"t": {"0": 1}})).status == 200
    assert (await stage(broker, [b"2"], seq=1)).status == 409
    assert stored(broker) == []


async def stage_bytes(broker: Broker, body: bytes, seq: int = 0) -> Answer:
    query = {"topic": "t", "slice": 0, "attempt": "a", "seq": seq}
    path = "/v1/writes/q/0/staged"
    return await broker.request("PUT", path, query, headers=KIND, body=body, worker=0)


@run
async def test_several_batches_in_one_request() -> None:
    broker = Broker()
    one, two, three, four = (_native.batch_encode([b"%d" % n, b"x"]) for n in range(1, 5))
    assert (await stage_bytes(broker, one + two)).json == {
        "rows": 4,
        "duplicate": False,
        "slice": 0,
    }
    # As after a crash that left the first ones: what is there is passed over.
    assert (await stage_bytes(broker, one + two + three)).json == {
        "rows": 2,
        "duplicate": False,
        "slice": 0,
    }
    assert (await stage_bytes(broker, one + two)).json == {"rows": 0, "duplicate": True, "slice": 0}
    gap = await stage_bytes(broker, four, seq=4)
    assert gap.status == 409 and gap.json["expectedSeq"] == 3
    assert (await stage_bytes(broker, three + four, seq=2)).json["rows"] == 2
    assert (await put(broker, "committed", ["a"], {"t": {"0": 8}})).status == 200
    assert stored(broker) == [b"1", b"x", b"2", b"x", b"3", b"x", b"4", b"x"]


@run
async def test_of_several_batches_all_are_sound_or_none_is_kept() -> None:
    broker = Broker()
    good = _native.batch_encode([b"1"])
    broken = good[:-8] + bytes(8)
    wrong = [b"", good[:-8], good + b"x", good + good[:40], good + bytes(32), good + broken]
    for body in [*wrong, good * (limits.STAGED_TOGETHER_MAX + 1)]:
        answer = await stage_bytes(broker, body)
        assert answer.status == 400, (len(body), answer)
    assert not broker.spools[0].files
    together = await stage_bytes(broker, good * limits.STAGED_TOGETHER_MAX)
    assert together.json["rows"] == limits.STAGED_TOGETHER_MAX


@run
async def test_a_restart_at_every_step() -> None:
    """Killed after each step of a commit in several parts; a repeated commit ends it."""
    values = [b"%d" % n for n in range(6)]
    for steps in range(8):
        broker = Broker()
        service = broker.services[0]
        assert service is not None
        service.staging._part_bytes = 1  # A part for each piece.
        for seq, value in enumerate(values):
            await stage(broker, [value], seq=seq)
        await put(broker, "prepared", ["a"], {"t": {"0": 6}})
        appends = service.appends.start_commit
        left = steps

        def dying(*args: Any, appends: Any = appends, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise BusyError("dead")
            return appends(*args, **kwargs)

        service.appends.start_commit = dying  # type: ignore[method-assign]
        service.staging.stop()
        answer = await put(broker, "committed", ["a"], {"t": {"0": 6}})
        assert answer.status == (200 if steps >= 6 else 503)
        assert stored(broker) == values[:steps]
        broker.spools[0].cut_power()
        await restart(broker)
        if 0 < steps:
            assert stored(broker) == values, "what has begun is completed by itself"
        service = broker.services[0]
        assert service is not None
        await stage(broker, values, attempt="again")
        assert (await put(broker, "committed", ["again"], {"t": {"0": 6}})).status == 200
        assert stored(broker) == values
        assert not broker.spools[0].files


@run
async def test_what_was_only_staged_may_be_lost_and_is_missed() -> None:
    broker = Broker()
    await stage(broker, [b"1"])
    broker.spools[0].cut_power()
    await restart(broker)
    assert (await put(broker, "committed", ["a"], {"t": {"0": 1}})).status == 409
    await stage(broker, [b"1"], attempt="b")
    await put(broker, "prepared", ["b"], {"t": {"0": 1}})
    broker.spools[0].cut_power()
    await restart(broker)
    assert (await put(broker, "committed", ["b"], {"t": {"0": 1}})).status == 200
    assert stored(broker) == [b"1"]


def later(service: Any, seconds: float) -> None:
    service.staging.monotonic = lambda: time.monotonic() + seconds


@run
async def test_expiry_and_giving_up() -> None:
    broker = Broker()
    service = broker.services[0]
    assert service is not None
    await stage(broker, [b"1"], writer="old")
    later(service, limits.STAGED_SECONDS_MAX + 1)
    await stage(broker, [b"1"], writer="new")
    assert await service.staging.expire() == 1
    assert list(broker.spools[0].files) == ["new/0"]
    assert (await broker.request("GET", "/v1/writes/old/0", worker=0)).status == 404
    assert (await broker.request("DELETE", "/v1/writes/new/0", worker=0)).status == 204
    assert (await broker.request("DELETE", "/v1/writes/new/0", worker=0)).status == 204
    assert not broker.spools[0].files


@run
async def test_what_is_told_to_be_alive_does_not_expire() -> None:
    broker = Broker()
    service = broker.services[0]
    assert service is not None
    await stage(broker, [b"1"], writer="old")
    for turn in range(1, 4):
        later(service, turn * 0.7 * limits.STAGED_SECONDS_MAX)
        path, body = "/v1/writes/old/0", b'{"state":"staged"}'
        told = await broker.request("PUT", path, headers=JSON, body=body, worker=0)
        assert (told.status, told.json["state"]) == (200, "staged")
        assert await service.staging.expire() == 0
    none = await broker.request("PUT", "/v1/writes/no/0", headers=JSON, body=body, worker=0)
    assert none.status == 404
    later(service, 3.2 * limits.STAGED_SECONDS_MAX)
    assert await service.staging.expire() == 1


async def begin(broker: Broker, service: Any) -> None:
    """A write of two slices, of which one is stored when its log takes nothing more."""
    await stage(broker, [b"1"], slice=0)
    await stage(broker, [b"2"], slice=1)
    await put(broker, "prepared", ["a"], {"t": {"0": 1, "1": 1}})
    service.staging.stop()
    start_commit, count = service.appends.start_commit, 0

    def once(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count > 1:
            raise BusyError("dead")
        return start_commit(*args, **kwargs)

    service.appends.start_commit = once  # type: ignore[method-assign]
    assert (await put(broker, "committed", ["a"], {"t": {"0": 1, "1": 1}})).status == 503
    assert stored(broker, 0) == [b"1"] and stored(broker, 1) == []


@run
async def test_what_has_begun_neither_expires_nor_is_given_up() -> None:
    broker = Broker()
    service = broker.services[0]
    assert service is not None
    await begin(broker, service)
    later(service, limits.STAGED_SECONDS_MAX + 1)
    assert await service.staging.expire() == 0
    assert (await broker.request("DELETE", "/v1/writes/q/0", worker=0)).status == 409
    await restart(broker)
    assert stored(broker, 0) == [b"1"] and stored(broker, 1) == [b"2"]


@run
async def test_a_busy_log_and_a_full_disk() -> None:
    broker = Broker()
    await stage(broker, [b"1"])
    broker.reactors[0].refuse = 3
    assert (await put(broker, "committed", ["a"], {"t": {"0": 1}})).status == 200
    broker.spools[0].full = True
    assert (await stage(broker, [b"1"], batch=1)).status == 503
    assert stored(broker) == [b"1"]


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("/v1/writes/q/x/staged", {}, 400),
        ("/v1/writes/q%2F/0/staged", {}, 400),
        (f"/v1/writes/{'q' * 129}/0/staged", {}, 400),
        (f"/v1/writes/q/{2**63}/staged", {}, 400),
        ("/v1/writes/q/0/staged", {"slice": "8"}, 400),
        ("/v1/writes/q/0/staged", {"slice": "4"}, 421),
        ("/v1/writes/q/0/staged", {"slice": "-1"}, 400),
        ("/v1/writes/q/0/staged", {"attempt": "a b"}, 400),
        ("/v1/writes/q/0/staged", {"attempt": "a" * 65}, 400),
        ("/v1/writes/q/0/staged", {"seq": "1e3"}, 400),
        ("/v1/writes/q/0/staged", {"topic": "__commits"}, 400),
        ("/v1/writes/q/0/staged", {"topic": "../x"}, 400),
    ],
)
def test_what_is_refused(path: str, query: dict[str, str], status: int) -> None:
    async def test() -> None:
        broker = Broker()
        given = {"topic": "t", "slice": "0", "attempt": "a", "seq": "0"} | query
        body = _native.batch_encode([b"1"])
        answer = await broker.request("PUT", path, given, headers=KIND, body=body, worker=0)
        assert answer.status == status, answer
        assert not broker.spools[0].files

    run(test)()


@pytest.mark.parametrize(
    "document",
    [
        b"", b"[]", b"{}", b'{"state":"committed"}',
        b'{"state":"staged","attempts":[],"rows":{}}',
        b'{"state":"committed","attempts":{},"rows":{}}',
        b'{"state":"committed","attempts":["a","a"],"rows":{}}',
        b'{"state":"committed","attempts":[1],"rows":{}}',
        b'{"state":"committed","attempts":["a"],"rows":[]}',
        b'{"state":"committed","attempts":["a"],"rows":{"t":3}}',
        b'{"state":"committed","attempts":["a"],"rows":{"t":{"0":-1}}}',
        b'{"state":"committed","attempts":["a"],"rows":{"t":{"0":true}}}',
        b'{"state":"committed","attempts":["a"],"rows":{"t":{"0":1.5}}}',
        b'{"state":"committed","attempts":["a"],"rows":{"__topics":{"0":1}}}',
        b'{"state":"committed","attempts":["a"],"rows":{"t":{"x":1}}}',
    ],
)  # fmt: skip
def test_commits_that_are_refused(document: bytes) -> None:
    async def test() -> None:
        broker = Broker()
        answer = await broker.request(
            "PUT", "/v1/writes/q/0", headers=JSON, body=document, worker=0
        )
        assert answer.status == 400, answer

    run(test)()


def test_parts_are_the_same_for_the_same_pieces() -> None:
    pieces = [Piece(StagedRecord({}, 0, size, 0), (1, size, 0, 0, 0)) for size in (5, 9, 20_000, 1)]
    assert [len(part) for part in parts_of(pieces, 6_000)] == [2, 1, 1]
    assert [len(part) for part in parts_of(pieces, 1)] == [1, 1, 1, 1]
    assert parts_of([], 100) == []


def test_marks_keep_their_numbers() -> None:
    held: set[str] = set()
    marks = Marks(bytes_max=2 * MARK_BYTES, held=lambda writer, _: writer in held)
    assert marks.reserve("a", ("t", 0), 0) == 0
    assert marks.reserve("b", ("t", 0), 0) == 1
    marks.release("b", ("t", 0))
    assert marks.reserve("c", ("t", 0), 0) == 1
    assert marks.reserve("a", ("t", 1), 0) == 0
    marks.set("c", ("t", 0), Mark(1, 0, 10, 2, 1, 500, "p"))
    marks.set("a", ("t", 0), Mark(0, 5, 10, 1, 1, 1_000, "q"))
    with pytest.raises(BusyError):
        marks.reserve("d", ("t", 2), 3_000)
    # The oldest that is finished goes, of whatever slice; what has begun or may go on stays.
    late_us = int(limits.MARK_SECONDS_MIN * 1e6) + 1_000
    held.add("a")
    with pytest.raises(BusyError):
        marks.reserve("d", ("t", 2), late_us)
    held.clear()
    assert marks.reserve("d", ("t", 2), late_us) == 0
    assert marks.get("a", ("t", 0)) is None and marks.get("c", ("t", 0)) is not None
    # Its number is used again only when the log is told that it is empty.
    assert marks.gone == [(0, 0)] and marks.reserve("e", ("t", 0), late_us) == 2
    marks.emptied(marks.gone.pop())
    assert marks.reserve("f", ("t", 0), late_us) == 0
    # A write that is planned keeps the number of a mark that is forgotten.
    held.add("c")
    marks.forget({"t"})
    assert marks.gone == [] and marks.reserve("c", ("t", 0), late_us) == 1
    held.clear()
    marks.release("c", ("t", 0))
    assert marks.gone == [(0, 1)]
    again = Marks()
    again.open([packed("c", ("t", 0), Mark(1, 0, 10, 2, 1, 2_000, "p")), (b"0.0", b"")])
    assert again.of("c") == {("t", 0): Mark(1, 0, 10, 2, 1, 2_000, "p")} and len(again) == 1
    assert again.reserve("x", ("t", 0), 0) == 0
    assert not again.done("c", 0, ("t", 0)) and Staging is not None


@run
async def test_writers_by_the_thousand_each_with_one_row() -> None:
    """No count of them is refused for a day; the log does not grow by what is forgotten."""
    patch = pytest.MonkeyPatch()
    patch.setattr(limits, "MARK_SECONDS_MIN", 0.0)
    broker = Broker()
    service = broker.services[0]
    assert service is not None
    service.staging.marks._bytes_max = 20 * MARK_BYTES
    for number in range(60):
        writer, place = f"job-{number}", number % 3
        await stage(broker, [b"%d" % number], writer=writer, slice=place)
        rows = {"t": {str(place): 1}}
        assert (await put(broker, "committed", ["a"], rows, writer=writer)).status == 200
    assert len(service.staging.marks) <= 20
    await service.staging.tidy()
    kept = broker.reactors[0].compacted("__commits")
    assert len([value for _, value in kept if value]) == len(service.staging.marks)
    await restart(broker)
    service = broker.services[0]
    assert service is not None and len(service.staging.marks) <= 20
    assert service.staging.marks.done("job-59", 0, ("t", 2))
    assert not service.staging.marks.done("job-0", 0, ("t", 0))
    patch.undo()


@pytest.mark.parametrize("died", [False, True])
def test_marks_go_with_their_topic(died: bool) -> None:
    async def test() -> None:
        broker = Broker()
        for topic in ("t", "other"):
            await stage(broker, [b"1"], topic=topic)
        both = {"t": {"0": 1}, "other": {"0": 1}}
        assert (await put(broker, "committed", ["a"], both)).status == 200
        # A later batch is prepared, and has the number of the mark.
        await stage(broker, [b"2"], batch=1, attempt="b")
        await put(broker, "prepared", ["b"], {"t": {"0": 1}}, batch=1)
        service = broker.services[0]
        assert service is not None
        if died:  # Before the marks were emptied: the next to lead does it.
            service.topics.on_deleted = None
        answer = await broker.request("DELETE", "/v1/topics/t", worker=0)
        assert answer.status == 204, answer
        if died:
            await restart(broker)
            service = broker.services[0]
            assert service is not None
        assert not service.staging.marks.done("q", 0, ("t", 0))
        assert service.staging.marks.done("q", 0, ("other", 0))
        await broker.request("DELETE", "/v1/writes/q/1", worker=0)
        await service.staging.tidy()
        await restart(broker)
        await stage(broker, [b"1"], attempt="c")
        assert (await put(broker, "committed", ["c"], {"t": {"0": 1}})).status == 200
        await restart(broker)
        # The last one's events: those before are cut off.
        assert stored(broker)[-1:] == [b"1"] and len(stored(broker)) == 2
        service = broker.services[0]
        assert service is not None and service.staging.marks.done("q", 0, ("t", 0))

    run(test)()


@run
async def test_a_batch_that_is_passed_over_is_told() -> None:
    broker = Broker()
    await stage(broker, [b"5"], batch=5)
    await put(broker, "committed", ["a"], {"t": {"0": 1}}, batch=5)
    await stage(broker, [b"3"], batch=3)
    answer = await put(broker, "committed", ["a"], {"t": {"0": 1}}, batch=3)
    assert answer.status == 200 and answer.json["laterBatches"] == {"t": "5"}
    assert answer.json["committed"] == {} and stored(broker) == [b"5"]


@run
async def test_a_writer_that_stages_too_much_leaves_room_for_others() -> None:
    broker = Broker()
    service = broker.services[0]
    assert service is not None
    service.staging._bytes_max = 4_000
    value = random.Random(1).randbytes(1500)
    answers = [await stage(broker, [value], seq=seq) for seq in range(3)]
    assert [each.status for each in answers] == [200, 503, 409]
    assert (await stage(broker, [value], batch=1)).status == 503, "its other batches count as well"
    assert (await stage(broker, [value], writer="other")).status == 200
