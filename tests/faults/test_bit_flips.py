"""A bit flips somewhere in a data directory: told, counted, and never served."""

import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faultlab.broker import Broker, StartError, range_paths
from faultlab.drain import Event, drain
from faultlab.flips import (
    TOPIC,
    Place,
    Spot,
    file_spots,
    read_around,
    sealed_spots,
    walked_spots,
)
from faultlab.round import TOTALS, Scene
from faultlab.wire import call

WALKS_MAX = 16
"""A broker gives up only after five attempts: some seconds each."""

IDLE_S = 2.2
"""After so long a quiet leader has written a heartbeat: all groups are known to be stable."""


class Patient:
    """A data directory with two generations, and what is in it; copies of it get hurt."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        scene = Scene(root, seed=seed, name="bit flips")
        self.whole = scene.broker.data_dir
        try:
            for turn in range(2):
                scene.broker.start()
                scene.turn = turn
                load = scene.run_load()
                time.sleep(2)
                scene.end_load()
                assert load.history.acked > 100
                if turn == 0:
                    assert scene.broker.stop() == 0
            stored = drain(scene.broker, TOPIC)
            self.events: dict[Place, Event] = {(each[0], each[2]): each for each in stored}
            time.sleep(IDLE_S)
        finally:
            scene.close()
        self.tried = 0

    @property
    def shards(self) -> list[Path]:
        """Of the directory that stays whole."""
        return range_paths(self.whole)

    def copy(self) -> Broker:
        """A broker on a copy, not started."""
        self.tried += 1
        directory = self.root / f"patient-{self.tried}"
        directory.mkdir()
        shutil.copytree(self.whole, directory / "data", ignore=lambda *_: {"run"})
        return Broker(directory / "data", logs=directory)

    def served(self, broker: Broker, what: str) -> list[tuple[int, int, int, str]]:
        """All that is served is right, and what is not served is refused. The refusals."""
        served = read_around(broker, TOPIC)
        wrong = [place for place, event in served.events.items() if self.events[place] != event]
        assert not wrong, f"{what}: {wrong[:3]}"
        refused = {
            (slice_, offset)
            for slice_, first, last, _ in served.refused
            for offset in range(first, last + 1)
        }
        assert served.events.keys() | refused == self.events.keys(), what
        return served.refused


@pytest.fixture(scope="module")
def patient(module_root: Path, module_seed: int) -> Iterator[Patient]:
    patient = Patient(module_root, module_seed)
    yield patient
    row = TOTALS.setdefault("bit flips", dict.fromkeys(("acked", "lost", "twice", "other"), 0))
    for name in ("tried", "survived"):
        row[name] = row.get(name, 0) + patient.tried
    row["acked"] += len(patient.events)
    row["worst s"] = 0


def corrupt_chunks(broker: Broker) -> int:
    """What the metric says."""
    text = call(broker.port, "GET", "/metrics").body.decode()
    found = re.search(r"^barco_storage_corrupt_chunks(?:_total)? (\d+)", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])


def hurt(patient: Patient, spot: Spot, check: Callable[[Broker, str], None]) -> None:
    """Flips a bit of a stopped broker's copy and looks at what happens."""
    broker = patient.copy()
    what = spot.flip(broker.data_dir, patient.random)
    try:
        check(broker, what)
    except Exception as error:
        raise AssertionError(f"{what}: {error}") from error
    finally:
        broker.close()
    shutil.rmtree(broker.data_dir.parent)


def walked(patient: Patient) -> Callable[[Broker, str], None]:
    """In the middle of a log that a start must walk: the shard stops, and says where."""

    def check(broker: Broker, what: str) -> None:
        with pytest.raises(StartError) as failure:
            broker.start()
        assert failure.value.status in (1, 78)
        log = failure.value.log
        assert "corrupt at byte" in log and "barco recover" in log, log
        assert "Traceback" not in log, log

    return check


def sealed(patient: Patient) -> Callable[[Broker, str], None]:
    """In a segment that nobody has to walk: everything else is served, the rest is refused."""

    def check(broker: Broker, what: str) -> None:
        broker.start()
        refused = patient.served(broker, what)
        if "group header" not in what:
            assert refused, "a damaged chunk was not noticed"
            assert corrupt_chunks(broker) >= 1
        for _, _, _, words in refused:
            assert ".log: corrupt chunk at byte" in words or "cannot be found" in words, words
        answer = call(broker.port, "POST", f"/v1/topic/{TOPIC}/messages?partitionKey=x", b"x")
        assert answer.status == 200, answer
        assert "Traceback" not in broker.log, broker.log

    return check


REFUSED = ("broker.json", "processes.json", "lineage.log")
"""A start may say no for these."""


def harmless(patient: Patient) -> Callable[[Broker, str], None]:
    """In a file that can be made again, or that refuses to be wrong."""

    def check(broker: Broker, what: str) -> None:
        try:
            broker.start()
        except StartError as error:
            assert any(name in what for name in REFUSED), str(error)
            assert "Traceback" not in error.log, error.log
            assert error.status in (1, 78)
            return
        assert not patient.served(broker, what)
        assert "Traceback" not in broker.log, broker.log

    return check


def spots(patient: Patient) -> list[tuple[Spot, Callable[[Broker, str], None]]]:
    """Every kind of place in both shards, with what is to happen there."""
    found: list[tuple[Spot, Callable[[Broker, str], None]]] = []
    for shard in patient.shards:
        found += [(spot, walked(patient)) for spot in walked_spots(patient.whole, shard)]
        sealed_ones = sealed_spots(patient.whole, shard, patient.random)
        found += [(spot, sealed(patient)) for spot in sealed_ones]
        found += [(spot, harmless(patient)) for spot in file_spots(patient.whole, shard)]
    return found


def test_bit_flips(patient: Patient) -> None:
    """One spot of each kind."""
    kinds: dict[str, tuple[Spot, Callable[[Broker, str], None]]] = {}
    found = spots(patient)
    patient.random.shuffle(found)
    for spot, check in found:
        kind = "walked" if "open group" in spot.kind else spot.kind.split(",")[-1].split(" ")[0]
        kinds.setdefault(kind + check.__qualname__, (spot, check))
    for spot, check in kinds.values():
        hurt(patient, spot, check)


def test_bit_flip_while_running(patient: Patient) -> None:
    """The same under a broker that runs: what it has in memory it serves, the rest it refuses."""
    broker = patient.copy()
    try:
        broker.start()
        for shard in patient.shards:
            spot = next(
                spot
                for spot in sealed_spots(patient.whole, shard, patient.random)
                if "section 5" in spot.kind
            )
            what = spot.flip(broker.data_dir, patient.random)
        assert patient.served(broker, what)
        assert corrupt_chunks(broker) >= 1
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_bit_flips_often(patient: Patient) -> None:
    walks = 0
    found = spots(patient)
    patient.random.shuffle(found)
    for spot, check in found:
        walks += "open group" in spot.kind
        if walks <= WALKS_MAX or "open group" not in spot.kind:
            hurt(patient, spot, check)
