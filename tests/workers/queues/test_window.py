"""One slice of a queue against a table with a row for each event, and through fail-overs."""

import random

import pytest
from queue_table import Model

from barco.model.queues import LEASE_MS_MAX, RUNS_MAX, WINDOW_MAX, QueueSettings
from barco.workers.queues.kept import COUNTS_KEPT, WindowValue, value_of
from barco.workers.queues.window import Given, Window

FOREVER = 2**40
DEFAULT = QueueSettings()


def events(runs: list[Given]) -> list[int]:
    return [at for run in runs for at in range(run.start, run.end)]


def opened(settings: QueueSettings = DEFAULT, room: int = 10**6) -> Window:
    window = Window(settings, 0)
    window.reserved = room
    return window


def survived(window: Window, now: int, end: int, *, gone: tuple[int, ...] = ()) -> Window:
    """The next leader's, by what the log has."""
    kept = window.kept(now, gone)
    told = kept.told()
    assert value_of(kept.base, told) == kept
    return Window.restored(window.settings, kept, end, now, 0)


def scan(window: Window, keys: list[int | None], end: int) -> None:
    while (at := window.scan_from(end)) is not None:
        window.scanned(at, keys[at : min(at + 7, end)])


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("ordered", [False, True])
def test_against_a_table(seed: int, ordered: bool) -> None:
    chance = random.Random(seed)
    settings = QueueSettings(
        in_flight=chance.choice((3, 20, 1000)),
        lease_ms=50,
        ordered=ordered,
        deliveries=chance.choice((0, 2, 3)),
        retry_ms=chance.choice((0, 7)),
        dead="d" if ordered else "",
    )
    window, model = opened(settings), Model(settings)
    keys: list[int | None] = [chance.choice((None, 1, 2, 3, 4, 5)) for _ in range(500)]
    now, end = 0, 0
    leases: list[Given] = []
    for _ in range(400):
        now += chance.randrange(8)
        window.due(now)
        model.due(now)
        what = chance.random()
        if what < 0.2:
            end = min(500, end + chance.randrange(12))
            model.grow(end)
        elif what < 0.5:
            if ordered:
                scan(window, keys, end)
            may = model.may_take(keys if ordered else None)
            room = settings.in_flight - model.out()
            most = chance.randrange(1, 9)
            until = now + chance.randrange(1, 50)
            runs = window.take(most, until, end)
            assert events(runs) == may[: max(0, min(most, room))]
            for run in runs:
                for at in range(run.start, run.end):
                    model.lease(at, until, run.times)
            leases += runs
        elif what < 0.75 and leases:
            run = leases.pop(chance.randrange(len(leases)))
            start = chance.randrange(run.start, run.end)
            window.acknowledge(start, run.end)
            for at in range(start, run.end):
                model.rows[at].state = "done"
        elif what < 0.9 and leases:
            run = leases.pop(chance.randrange(len(leases)))
            delay = chance.choice((0, 5, 30))
            lost = window.give_back(run, now, delay=delay, reason="r", known=True)
            left = set(range(run.start, run.end)) - set(events(lost))
            for at in range(run.start, run.end):
                row = model.rows[at]
                mine = row.state == "leased" and row.leased == run.times
                assert mine == (at in left), (at, row)
                if mine:
                    model.back(at, run.times, now, delay)
        elif what < 0.95 and leases:
            run = chance.choice(leases)
            lost = window.extend(run, now + 40)
            for at in set(range(run.start, run.end)) - set(events(lost)):
                assert model.rows[at].state == "leased"
                model.rows[at].until = now + 40
        elif leases:
            run = leases.pop()
            window.release(run)
            for at in range(run.start, run.end):
                row = model.rows[at]
                if row.state == "leased" and row.leased == run.times:
                    row.state = "free"
        done = model.done()
        assert window.base == next((n for n in range(501) if n not in done), 0)
        assert window.in_flight == model.out()
        assert set(window.dying) == {n for n, r in enumerate(model.rows) if r.state == "dying"}
        assert window.done == len([at for at in done if at >= window.base])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ordered", [False, True])
def test_through_fail_overs(seed: int, ordered: bool) -> None:
    """Nothing acknowledged comes again, nothing else is lost, nothing is with two at a time, of a
    key one at a time and in order."""
    chance = random.Random(seed)
    settings = QueueSettings(in_flight=50, lease_ms=100, ordered=ordered)
    keys: list[int | None] = [chance.choice((None, *range(8))) for _ in range(2000)]
    log = Window(settings, 0).kept(0)  # What is stable.
    window = Window.restored(settings, log, 0, 0, 0)
    now = end = 0
    stable: set[int] = set()
    holders: dict[int, int] = {}
    served: list[int] = []
    for step in range(3000):
        now += chance.randrange(4)
        window.due(now)
        holders = {at: until for at, until in holders.items() if until > now}
        what = chance.random()
        if what < 0.2:
            end = min(2000, end + chance.randrange(30))
        elif what < 0.5:
            if window.wants_room(end):
                log = window.kept(now)
                window.reserved = max(window.reserved, log.reserved)
            if ordered:
                scan(window, keys, end)
            until = now + 100
            got = events(window.take(10, until, end))
            assert not stable.intersection(got), "acknowledged, and given again"
            assert not holders.keys() & set(got), "with two at a time"
            used = {keys[at] for at in holders if keys[at] is not None}
            for at in got:
                if ordered and keys[at] is not None:
                    assert keys[at] not in used, "two of a key at a time"
                    used.add(keys[at])
                    before = [n for n in range(at) if keys[n] == keys[at]]
                    assert stable.issuperset(before) or not set(before) - stable - acked(window)
                holders[at] = until
            served += got
        elif what < 0.8 and holders:
            some = chance.sample(sorted(holders), min(5, len(holders)))
            for at in some:
                window.acknowledge(at, at + 1)
                del holders[at]
            if chance.random() < 0.8:  # Stable; else the leader dies before it is.
                log = window.kept(now)
                window.reserved = max(window.reserved, log.reserved)
                stable.update(some)
            else:
                window = Window.restored(settings, log, end, now, 0)
        elif what < 0.82:
            window = Window.restored(settings, log, end, now, 0)
        if step > 2900 or step % 500 == 0:
            assert len(log.done) <= WINDOW_MAX // 8
    for _ in range(10_000):
        if len(stable) == end:
            break
        now += 150
        window.due(now)
        if window.wants_room(end):
            log = window.kept(now)
            window.reserved = max(window.reserved, log.reserved)
        if ordered:
            scan(window, keys, end)
        for at in events(window.take(50, now + 100, end)):
            assert at not in stable
            window.acknowledge(at, at + 1)
            stable.add(at)
    assert stable == set(range(end)) and window.base == end


def acked(window: Window) -> set[int]:
    kept = window.kept(0)
    bits = int.from_bytes(kept.done, "little")
    done = {kept.base + n for n in range(bits.bit_length()) if bits >> n & 1}
    return done | set(range(kept.base))


def test_counts_survive() -> None:
    settings = QueueSettings(lease_ms=100, deliveries=9, dead="d")
    window = opened(settings)
    (_run,) = window.take(5, 100, 5)
    window.give_back(Given(2, 3, 1), 0, delay=5000, reason="r", known=True)
    window.give_back(Given(3, 4, 1), 0, delay=0, reason="r", known=True)
    (again,) = window.take(1, 100, 5)
    assert again == Given(3, 4, 2)
    window.give_back(again, 0, delay=0, reason="r", known=True)
    later = survived(window, 0, 5)
    assert later.take(9, 200, 5) == [], "all of it may still be with somebody"
    later.due(99)
    assert later.take(9, 200, 5) == []
    later.due(100)
    assert later.take(9, 200, 5) == [Given(0, 2, 1), Given(3, 4, 3), Given(4, 5, 1)]
    later.due(4999)
    assert events(later.take(9, 9000, 5)) == [0, 1, 3, 4], "those whose lease is over"
    later.due(5000)
    assert later.take(9, 9000, 5) == [Given(2, 3, 2)]


def test_what_was_given_to_nobody_is_given_at_once_by_the_next_leader() -> None:
    window = opened(room=1024)
    window.take(3, 100, 500)
    kept = window.kept(0)
    assert kept.reserved == 3 + 1024
    later = Window.restored(window.settings, kept, 1500, 0, 0)
    assert events(later.take(5, 100, 1500)) == [], "not further than is reserved"
    assert later.next == 1027 and later.wants_room(1500)
    later.reserved += 1000
    assert events(later.take(5, 100, 1500)) == list(range(1027, 1032))
    fresh = Window.restored(window.settings, kept, 10, 0, 0)
    assert events(fresh.take(5, 100, 15)) == list(range(10, 15)), "they came after it had begun"


def test_an_old_leaders_leases() -> None:
    window = opened()
    window.take(4, 100, 4)
    later = survived(window, 0, 4)
    assert later.acknowledge(0, 1) and later.base == 1
    assert later.give_back(Given(1, 2, 1), 0, delay=0, reason="r", known=False) == []
    assert later.take(9, 50, 4) == [Given(1, 2, 2)], "given back: free at once, and counted"
    assert later.give_back(Given(1, 2, 1), 0, reason="r", known=False) == [Given(1, 2, 1)]
    assert later.extend(Given(2, 3, 1), 500) == [Given(2, 3, 1)], "leases are not written"


def test_a_lease_is_kept_for_as_long_as_it_was_given() -> None:
    window = opened(QueueSettings(lease_ms=60_000), room=3)
    window.take(2, 60_000, 3)
    window.change(QueueSettings(lease_ms=1_000), 10)
    assert window.take(1, 1_020, 3) == [Given(2, 3, 1)]
    later = survived(survived(window, 20, 3), 30, 3)
    later.due(60_009)
    assert later.take(9, FOREVER, 3) == [], "it may still be with who got it"
    later.due(60_010)
    assert later.take(9, FOREVER, 3) == [Given(0, 3, 1)]
    assert survived(later, 70_000, 3).kept(70_000).held == 0, "once is enough"


def test_late() -> None:
    window = opened()
    (run,) = window.take(2, 10, 2)
    window.due(10)
    (again,) = window.take(2, 20, 2)
    assert again.times == 2
    assert window.give_back(run, 10, reason="r", known=True) == [Given(0, 2, 1)]
    assert window.extend(run, 99) == [Given(0, 2, 1)]
    assert window.acknowledge(0, 2) and not window.acknowledge(0, 2)
    assert window.give_back(again, 10, reason="r", known=True) == [again], "done by another"


def test_what_was_never_given_can_not_be_done() -> None:
    """In order of keys all that waits behind the first of its key was looked at: whoever names it
    anyway, or neighbours of what is theirs, ends nobody else's work."""
    window = Window(QueueSettings(ordered=True), 0)
    window.reserved = 100
    window.scanned(0, [7, 7, 8, 7, None])
    assert window.take(1, 50, 5) == [Given(0, 1, 1)]
    assert not window.acknowledge(1, 5) and window.done == 0
    assert window.acknowledge(0, 5) and (window.base, window.done) == (1, 0)
    given = window.take(9, 50, 5)
    assert events(given) == [1, 2, 4]
    assert window.give_back(given[0], 50, reason="r", known=True) == []
    for run in given:  # Late, or not: it was given.
        assert window.acknowledge(run.start, run.end)
    assert events(window.take(9, 50, 5)) == [3]
    # What a leader before has given nobody knows: whoever says that it is done is believed.
    later = Window.restored(window.settings, window.kept(0), 5, 0, 0)
    later.due(10**9)
    assert later.acknowledge(3, 4)


def test_the_value_is_bounded() -> None:
    window = opened(QueueSettings(in_flight=10_000, dead="d" * 127), room=10**6)
    for _ in range(2):
        for run in window.take(10_000, FOREVER, 10**6):
            for at in range(run.start, run.end):
                if at % 2:
                    window.acknowledge(at, at + 1)
                else:
                    window.give_back(
                        Given(at, at + 1, run.times), 0, delay=86_400_000, reason="", known=True
                    )
    for _ in range(300):
        if not window.take(100, FOREVER, 10**6):
            break
    window.change(QueueSettings(lease_ms=LEASE_MS_MAX, dead="d" * 127), 0)
    window.change(QueueSettings(dead="d" * 127), 0)
    kept = window.kept(0)
    assert kept.held == LEASE_MS_MAX
    assert len(kept.done) <= WINDOW_MAX // 8 and len(kept.counts) == 8 * COUNTS_KEPT
    from barco.workers.queues.slot import Slot

    slot = Slot("g" * 128, "t" * 127, 1023, "o" * 128, window)
    assert len(slot.packed(2**32 - 1, kept, 2**62)) <= 4096


def test_a_stuck_event_ends_the_window_and_is_named() -> None:
    window = opened(QueueSettings(in_flight=10_000))
    window.take(1, FOREVER, 10**6)
    while runs := window.take(1000, FOREVER, 10**6):
        for run in runs:
            window.acknowledge(run.start, run.end)
    assert window.next == WINDOW_MAX and window.held_by == 0
    assert not window.has(10**6) and not window.wants_room(10**6)
    window.acknowledge(0, 1)
    assert window.base == WINDOW_MAX and window.held_by is None and window.has(10**6)


def test_runs_of_an_answer_are_bounded() -> None:
    window = opened(QueueSettings(in_flight=10_000))
    window.take(1000, FOREVER, 10_000)
    for at in range(0, 1000, 2):
        window.give_back(Given(at, at + 1, 1), 0, delay=0, reason="", known=True)
    assert len(window.take(1000, FOREVER, 10_000)) == RUNS_MAX


def test_leases_that_were_given_back_are_forgotten() -> None:
    window = opened()
    for number in range(5000):
        (run,) = window.take(1, FOREVER, 10**6)
        window.acknowledge(run.start, run.end)
        assert run.start == number
    assert len(window._ends) < 1000


def test_dead_letters() -> None:
    settings = QueueSettings(lease_ms=10, deliveries=2, dead="d")
    window = opened(settings)
    for turn in (1, 2):
        (run,) = window.take(1, 10 * turn, 1)
        assert run.times == turn
        window.due(10 * turn)
    assert window.dying == {0: (2, "expired")} and window.take(1, 99, 1) == []
    kept = window.kept(20, gone=(0,))
    after = Window.restored(settings, kept, 1, 20, 0)
    assert after.base == 1 and after.waiting == 0, "what is written says that it is done"
    before = survived(window, 20, 1)
    before.due(30)
    assert before.dying == {0: (2, "expired")}, "the next leader does not give it again"
    window.acknowledge(0, 1)
    assert window.base == 1 and not window.dying


def test_retention() -> None:
    window = opened()
    window.take(4, FOREVER, 10)
    window.skipped(2)
    assert window.base == 2 and window.in_flight == 2
    window.skipped(7)
    assert window.base == 7 and window.in_flight == 0
    assert events(window.take(9, FOREVER, 10)) == [7, 8, 9]


@pytest.mark.parametrize(
    "given",
    [
        {"reserved": -1, "done": b"", "counts": b""},
        {"reserved": 5, "done": bytes(WINDOW_MAX // 8 + 1), "counts": b""},
        {"reserved": 5, "done": b"", "counts": b"1234567"},
        {"reserved": 5, "done": b"", "counts": bytes(8 * COUNTS_KEPT + 8)},
        {"reserved": 5, "done": "", "counts": b""},
        {"reserved": 5, "done": b"", "counts": b"", "held": -1},
        {"reserved": 5, "done": b"", "counts": b"", "held": LEASE_MS_MAX + 1},
    ],
)
def test_what_is_no_window(given: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        value_of(0, given)


@pytest.mark.parametrize("seed", range(30))
def test_any_bytes_make_a_window(seed: int) -> None:
    chance = random.Random(seed)
    base = chance.randrange(1000)
    kept = WindowValue(
        base,
        base + chance.randrange(3000),
        chance.randbytes(chance.randrange(300)),
        chance.randbytes(8 * chance.randrange(COUNTS_KEPT)),
    )
    window = Window.restored(QueueSettings(), kept, base + chance.randrange(2000), 0, 0)
    window.due(FOREVER)
    window.reserved += 10_000
    while runs := window.take(1000, FOREVER, base + 3000):
        for run in runs:
            window.acknowledge(run.start, run.end)
    assert window.base >= base and not window.in_flight
