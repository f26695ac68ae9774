"""`barco export` against real brokers: each event once in the table, wherever it is killed."""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import RunningBroker

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[export]'")
import pyarrow.parquet as pq
from reference import restcatalog

import barco
from barco.supervisor.tied import start_tied

KEYS = 23


def endpoint(broker: RunningBroker) -> str:
    return f"127.0.0.1:{broker.port('discovery')}"


def produce(broker: RunningBroker, numbers: range, topic: str = "t") -> None:
    with barco.Producer(endpoint(broker)) as producer:
        keys = [b"k%d" % (n % KEYS) for n in numbers]
        values = [json.dumps({"n": n, "s": f"v{n}"}).encode() for n in numbers]
        assert producer.send_many(topic, values, keys).result(60) == len(numbers)


def command(broker: RunningBroker, *words: str) -> list[str]:
    return [
        *(sys.executable, "-P", "-m", "barco", "export", *words),
        *("--endpoint", endpoint(broker), "--json"),
    ]


def export(broker: RunningBroker, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        command(broker, *words), check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def refused(broker: RunningBroker, *words: str) -> str:
    done = subprocess.run(
        command(broker, *words), check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def kept(path: Path) -> list[dict[str, Any]]:
    files = sorted(path.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def check(rows: list[dict[str, Any]], count: int) -> None:
    """All of 0 up to count, once each; in order for each key."""
    numbers = [row["n"] for row in rows]
    assert sorted(numbers) == list(range(count))
    last: dict[str, int] = {}
    for row in rows:
        assert row["_key"] == f"k{row['n'] % KEYS}" and row["s"] == f"v{row['n']}"
        assert last.get(row["_key"], -1) < row["n"], "order within a key"
        last[row["_key"]] = row["n"]


def test_goes_on_where_it_was(broker: RunningBroker, tmp_path: Path) -> None:
    to = tmp_path / "d"
    produce(broker, range(5_000))
    told = export(broker, "t", "--to", str(to), "--columns", "auto")
    assert told["events"] == 5_000 and told["commits"] == 1 and told["keptWhole"] == 0
    assert export(broker, "t", "--to", str(to), "--columns", "auto")["events"] == 0
    produce(broker, range(5_000, 7_000))
    assert export(broker, "t", "--to", str(to), "--columns", "auto")["events"] == 2_000
    check(kept(to), 7_000)


def test_events_as_they_are(broker: RunningBroker, tmp_path: Path) -> None:
    """Keys, tombstones, headers, bytes that are no text, and where each event is from."""
    with barco.Producer(endpoint(broker)) as producer:
        producer.send("t", b"a", b"k", headers={"h": b"x", "raw": b"\xff"}).result(60)
        producer.send("t", None, b"k").result(60)
        producer.send("t", b"\xfe", b"\xff").result(60)
    told = export(broker, "t", "--to", str(tmp_path / "d"))
    assert told["events"] == 3 and told["notText"] == 3
    found = {(row["key"], row["value"]): row for row in kept(tmp_path / "d")}
    odd = '{"base64":"/w=="}'
    assert found.keys() == {("k", "a"), ("k", None), (odd, '{"base64":"/g=="}')}
    assert found["k", "a"]["headers"] == [
        {"name": "h", "value": "x"},
        {"name": "raw", "value": odd},
    ]
    assert found["k", None]["headers"] is None
    places = {
        (event.slice, event.offset): event.timestamp_us
        for event in barco.read("t", endpoint(broker))
    }
    assert {
        (row["slice"], row["offset"]): round(row["timestamp"].timestamp() * 1e6)
        for row in found.values()
    } == places


def test_killed_again_and_again_while_events_come(broker: RunningBroker, tmp_path: Path) -> None:
    to = tmp_path / "d"
    count, chance = 60_000, random.Random(3)
    produce(broker, range(1_000))
    writer = threading.Thread(target=fill, args=(broker, 1_000, count))
    writer.start()
    words = ("t", "--to", str(to), "--columns", "auto", "--follow", "--every", "1")
    kills = 0
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (kills < 6 or writer.is_alive()):
        with start_tied(command(broker, *words), stderr=subprocess.DEVNULL) as process:
            seen = len(list(to.glob("*.parquet")))
            wanted = seen + chance.randrange(3)
            while len(list(to.glob("*.parquet"))) < wanted and time.monotonic() < deadline:
                time.sleep(0.02)
                if not writer.is_alive():
                    break
            time.sleep(chance.random())
            process.kill()
            process.wait(60)
            kills += 1
    writer.join(60)
    assert kills >= 6
    export(broker, "t", "--to", str(to), "--columns", "auto")
    check(kept(to), count)


def fill(broker: RunningBroker, first: int, count: int) -> None:
    for start in range(first, count, 1_000):
        produce(broker, range(start, min(count, start + 1_000)))
        time.sleep(0.05)


def test_what_is_refused(broker: RunningBroker, tmp_path: Path) -> None:
    to = str(tmp_path / "d")
    produce(broker, range(100))
    produce(broker, range(10), "u")
    export(broker, "t", "--to", to)
    assert "columns were asked for" in refused(broker, "t", "--to", to, "--columns", "auto")
    assert "the topic t was exported there" in refused(broker, "u", "--to", to)
    assert "there is no topic" in refused(broker, "nothing", "--to", str(tmp_path / "n")).lower()
    assert "--catalog" in refused(broker, "t", "--to", "iceberg:a.b")
    assert "--from latest" in refused(broker, "t", "--to", to, "--from", "latest")
    assert "column" in refused(broker, "t", "--to", str(tmp_path / "c"), "--columns", "a:int")
    (tmp_path / "file").write_text("")
    assert "not a directory" in refused(broker, "t", "--to", str(tmp_path / "file"))


def test_a_topic_that_is_made_anew_goes_on(broker: RunningBroker, tmp_path: Path) -> None:
    """Its offsets do, so its cursors name no other events."""
    to = tmp_path / "d"
    words = ("t", "--to", str(to), "--columns", "auto")
    produce(broker, range(100))
    export(broker, *words)
    assert broker.request("DELETE", "/v1/topics/t", listener="discovery").status == 204
    produce(broker, range(100, 120))
    assert export(broker, *words)["events"] == 20
    check(kept(to), 120)


def test_a_topic_of_another_cluster(
    broker: RunningBroker, start_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    to = str(tmp_path / "d")
    produce(broker, range(100))
    export(broker, "t", "--to", to)
    other = start_broker()
    produce(other, range(10))
    assert "another cluster" in refused(other, "t", "--to", to)


def test_retention_was_faster(broker: RunningBroker, tmp_path: Path) -> None:
    """What is gone is counted and told, and what is left is exported."""
    to = tmp_path / "d"
    kind = {"Content-Type": "application/json"}
    made = broker.request("PUT", "/v1/topics/t", body=b'{"retentionBytes": 400000}', headers=kind)
    assert made.status == 201, made
    chance = random.Random(5)

    def some(count: int) -> None:
        for _ in range(count):
            body = chance.randbytes(9_000)
            broker.produce("t", body, key="k", kind="application/octet-stream")

    some(2)
    assert export(broker, "t", "--to", str(to))["events"] == 2
    some(20)
    assert broker.stop() == 0
    broker.restart()  # Retention is enforced at a start.
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and first_offset(broker) <= 2:
        time.sleep(0.05)
    first = first_offset(broker)
    assert 2 < first < 22
    told = export(broker, "t", "--to", str(to))
    assert told["events"] == 22 - first
    assert len(told["gone"]) == 1 and told["gone"][0].startswith(f"{first - 2} events of slice ")
    assert [row["offset"] for row in kept(to)] == [0, 1, *range(first, 22)]


def first_offset(broker: RunningBroker) -> int:
    slices = broker.request("GET", "/v1/topic/t/slices").json["slices"]
    return max(int(each["startOffset"]) for each in slices)


def test_iceberg(broker: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="no pyiceberg: pip install 'barco[export]'")
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{tmp_path}/catalog.db"
    words = ("t", "--to", "iceberg:raw.t", "--catalog", uri, "--warehouse", str(tmp_path / "lake"))
    produce(broker, range(3_000))
    assert export(broker, *words, "--columns", "auto")["events"] == 3_000
    produce(broker, range(3_000, 4_000))
    assert export(broker, *words, "--columns", "auto")["events"] == 1_000
    catalog = load_catalog("default", type="sql", uri=uri)
    table = catalog.load_table("raw.t").scan().to_arrow()
    rows = sorted(table.to_pylist(), key=lambda row: (row["_slice"], row["_offset"]))
    check(rows, 4_000)


@pytest.mark.chaos  # A catalog in Java: 50 s.
def test_a_rest_catalog_and_kill_9(broker: RunningBroker, tmp_path: Path) -> None:
    """Into Iceberg's own REST catalogue, by exports that are killed while events come."""
    pytest.importorskip("pyiceberg", reason="no pyiceberg: pip install 'barco[export]'")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    path = tmp_path / "catalog"
    path.mkdir()
    with restcatalog.running(path) as there:
        words = ("t", "--to", "iceberg:raw.t", "--catalog", there.uri, "--columns", "auto")
        words += ("--catalog-token-file", str(there.token_file))
        given = {"type": "rest", "uri": there.uri, "token": restcatalog.TOKEN}
        catalog = load_catalog("other", **given)

        def snapshots() -> int:
            try:
                return len(catalog.load_table("raw.t").snapshots())
            except NoSuchTableError:
                return 0

        count = 0
        for _ in range(3):
            wanted = snapshots() + 2
            following = command(broker, *words, "--follow", "--every", "1")
            with start_tied(following, stderr=subprocess.DEVNULL) as process:
                while snapshots() < wanted:  # With events on their way into the next one.
                    assert process.poll() is None
                    produce(broker, range(count, count + 500))
                    count += 500
                process.kill()
        export(broker, *words)
        rows = catalog.load_table("raw.t").scan().to_arrow().to_pylist()
        check(sorted(rows, key=lambda row: (row["_slice"], row["_offset"])), count)
        assert export(broker, *words)["events"] == 0
