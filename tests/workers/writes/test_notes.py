"""Notes of writers on the twin: each batch is decided once, and nothing forgets that."""

import asyncio
import json
from typing import Any

import pytest
from test_staging import JSON, put, restart, stage, stored
from twin import Answer, Broker, run

from barco import limits
from barco.errors import NotReadyError
from barco.model.note import KEEP_SECONDS_MAX, NOTE_BYTES_MAX, home_of
from barco.model.placement import Placement
from barco.workers.writes import notes
from barco.workers.writes.notes import Decision, Notes, event_of


async def decide(
    broker: Broker, batch: int, note: Any, *, writer: str = "q", worker: int = 0, **more: Any
) -> Answer:
    body = {"state": "prepared", "attempts": [], "rows": {}, "note": note, **more}
    path, text = f"/v1/writes/{writer}/{batch}", json.dumps(body).encode()
    return await broker.request("PUT", path, headers=JSON, body=text, worker=worker)


async def last(broker: Broker, writer: str = "q", worker: int = 0) -> tuple[str | None, str | None]:
    answer = await broker.request("GET", f"/v1/writes/{writer}", worker=worker)
    assert answer.status == 200, answer
    return answer.json["batch"], answer.json["note"]


def home(broker: Broker, writer: str = "q") -> int:
    return broker.owner(home_of(writer, Placement(1, broker.slices)))


@run
async def test_a_note_is_given_back_by_every_worker_and_after_a_restart() -> None:
    broker = Broker()
    assert await last(broker) == (None, None)
    for worker, batch in ((0, 3), (1, 5)):  # One of them has it from the other.
        assert (await decide(broker, batch, f"as of {batch}", worker=worker)).status == 200
        assert [await last(broker, worker=n) for n in (0, 1)] == [
            (str(batch), f"as of {batch}")
        ] * 2
    await restart(broker, home(broker))
    assert await last(broker) == ("5", "as of 5")
    assert await last(broker, "other") == (None, None)


@run
async def test_of_two_notes_of_one_batch_the_first_counts() -> None:
    broker = Broker()
    answers = await asyncio.gather(*(decide(broker, 1, f"of {n}", worker=n % 2) for n in range(8)))
    assert sorted(each.status for each in answers) == [200] + [409] * 7
    (winner,) = [n for n, each in enumerate(answers) if each.status == 200]
    assert await last(broker) == ("1", f"of {winner}")
    assert (await decide(broker, 1, f"of {winner}")).status == 200  # Sent again, it is no other.
    late = await decide(broker, 0, f"of {winner}")
    assert late.status == 409 and late.json["decidedBatch"] == "1"
    await restart(broker, home(broker))
    assert (await decide(broker, 1, "of none")).status == 409
    assert await last(broker) == ("1", f"of {winner}")


@run
async def test_the_note_comes_after_what_is_prepared_beside_it() -> None:
    broker = Broker()
    await stage(broker, [b"1"])
    body: dict[str, Any] = {"state": "prepared", "attempts": ["a"], "rows": {"t": {"0": 2}}}
    path = "/v1/writes/q/0"

    async def send() -> Answer:
        text = json.dumps(body | {"note": "n"}).encode()
        return await broker.request("PUT", path, headers=JSON, body=text, worker=0)

    assert (await send()).status == 409  # There is one event and not two.
    assert await last(broker) == (None, None)
    body["rows"] = {"t": {"0": 1}}
    assert (await send()).json["state"] == "prepared"
    assert await last(broker) == ("0", "n")
    assert (await put(broker, "committed", ["a"], {"t": {"0": 1}})).json["state"] == "committed"
    assert stored(broker) == [b"1"] and await last(broker) == ("0", "n")


@run
async def test_what_the_log_did_not_take_is_no_note() -> None:
    broker = Broker()
    await decide(broker, 1, "one")
    reactor = broker.reactors[home(broker)]
    reactor.fail_status = 507
    assert (await decide(broker, 2, "two")).status == 503
    assert await last(broker) == ("1", "one")
    reactor.fail_status = 0
    assert (await decide(broker, 2, "other")).status == 200
    assert await last(broker) == ("2", "other")


@run
async def test_a_note_that_is_forgotten() -> None:
    broker = Broker()
    await decide(broker, 7, "seven")
    for _ in range(2):
        assert (await broker.request("DELETE", "/v1/writes/q", worker=1)).status == 204
        assert await last(broker) == (None, None)
        await restart(broker, home(broker))
    assert (await decide(broker, 0, "anew")).status == 200


@run
async def test_lengths_and_forms() -> None:
    broker = Broker()
    assert (await decide(broker, 1, "ä" * (NOTE_BYTES_MAX // 2))).status == 200
    for note, status in (("ä" * (NOTE_BYTES_MAX // 2) + "x", 413), (7, 400), ({}, 400)):
        assert (await decide(broker, 2, note)).status == status
    assert (await decide(broker, 2, "\ud800")).status == 400
    for keep in (-1, KEEP_SECONDS_MAX + 1, True, "1"):
        assert (await decide(broker, 2, "n", keepSeconds=keep)).status == 400
    misspelt = await decide(broker, 2, "n", notes="n")
    assert misspelt.status == 400 and "did you mean note?" in misspelt.json["detail"]
    body = {"state": "committed", "attempts": [], "rows": {}, "note": "n"}
    text = json.dumps(body).encode()
    assert (await broker.request("PUT", "/v1/writes/q/2", headers=JSON, body=text)).status == 400
    assert (await last(broker))[0] == "1"


def test_notes_are_bounded_and_none_makes_room_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notes, "NOTES_BYTES_MAX", 700)
    run(fill)()


async def fill() -> None:
    broker = Broker(workers=1)
    full = [(await decide(broker, 1, "x" * 200, writer=f"w{n}")).status for n in range(4)]
    assert full == [200, 200, 429, 429]
    assert (await decide(broker, 2, "y" * 200, writer="w0")).status == 200
    assert (await decide(broker, 3, "y" * 500, writer="w0")).status == 429
    assert await last(broker, "w0") == ("2", "y" * 200)
    assert (await broker.request("DELETE", "/v1/writes/w1")).status == 204
    assert (await decide(broker, 1, "x" * 200, writer="w2")).status == 200


def test_a_user_has_half_of_the_room() -> None:
    long = Decision(0, 1, "x" * 60_000, 1)
    kept = {f"eve:w{n}": long for n in range(34)}
    notes._check_room(kept, "bob:w", long, "bob:")
    with pytest.raises(notes.TooManyRequestsError, match="DELETE"):
        notes._check_room(kept, "eve:w", long, "eve:")


@run
async def test_what_others_have_written_there_is_passed_over() -> None:
    broker = Broker()
    reactor = broker.reactors[home(broker)]
    await decide(broker, 1, "one")
    (key, value) = event_of("long", Decision(0, 1, "x" * (NOTE_BYTES_MAX + 1), 1))
    reactor.kept["__notes", key] = value
    reactor.kept["__notes", b"0/none"] = b"\xc1"
    await restart(broker, home(broker))
    assert await last(broker) == ("1", "one") and await last(broker, "long") == (None, None)


@run
async def test_after_a_split_who_has_the_slice_has_the_note() -> None:
    broker = Broker(workers=1)
    await decide(broker, 4, "four")
    index = home_of("q", Placement(1, 8))
    service = broker.services[0]
    assert service is not None
    parts = []
    for half in (range(4), range(4, 8)):
        part = Notes(broker.reactors[0], service.appends, half, lambda: 1)
        part.open()
        parts.append((half, part))
    for half, part in parts:
        asked = part.operations()["note"]({"writer": "q", "slice": index})
        if index in half:
            assert (await asked)["note"] == "four"
        else:
            with pytest.raises(NotReadyError):
                await asked


@run
async def test_a_prepared_write_on_which_a_note_decides_is_kept() -> None:
    broker = Broker(workers=1)
    service = broker.services[0]
    assert service is not None
    for writer, more in (("kept", {"keepSeconds": KEEP_SECONDS_MAX}), ("q", {})):
        await stage(broker, [b"1"], writer=writer)
        body = {"state": "prepared", "attempts": ["a"], "rows": {"t": {"0": 1}}, **more}
        path, text = f"/v1/writes/{writer}/0", json.dumps(body).encode()
        assert (await broker.request("PUT", path, headers=JSON, body=text)).status == 200
    staging, begin = service.staging, service.staging.monotonic()
    staging.monotonic = lambda: begin + limits.STAGED_SECONDS_MAX + 60
    assert await staging.expire() == 1 and list(staging.writes) == [("kept", 0)]
    assert not await staging._drop_idle(staging.writes.values())
    await restart(broker)
    service = broker.services[0]
    assert service is not None and [each.keep_s for each in service.staging.writes.values()] == [
        KEEP_SECONDS_MAX
    ]
    service.staging.monotonic = lambda: begin + 2 * KEEP_SECONDS_MAX
    assert await service.staging.expire() == 1
