"""Events with headers or without a value in a ring: fail-over and repair, and brokers that are too
old for them."""

import http.client
import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from joining import JoinedCluster, three, until

from barco import _native
from barco.supervisor.datadir import PROCESSES

CHUNKS = "application/vnd.barco.chunks"
BATCH = "application/vnd.barco.batch"
NDJSON = "application/x-ndjson"

REFUSED = (0, 500, 503)
"""503, where nobody is in the way; the others when a leader changes meanwhile, as on a busy
machine. None of them stores what another broker can not read."""

OLD = """import sys
import barco.model.options as options
options.LOG_FORMATS = (1,)
from barco.supervisor.files.notes import DirectoryNotes
DirectoryNotes._may_write = lambda *asked: 1
import runpy
sys.argv[0] = "barco"
runpy.run_module("barco", run_name="__main__")
"""
"""What an earlier version says and reads: it knows one format, and says nothing of formats."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


@pytest.fixture
def old_cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    """Three brokers of an earlier version."""
    script = tmp_path / "old-python"
    script.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -P -c "$OLD_BARCO" "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    os.environ["OLD_BARCO"] = OLD
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{n + 1}" for n in range(3))
    made = JoinedCluster(tmp_path, hosts=hosts, tied=True, python=str(script))
    made.write()
    try:
        for ordinal in range(3):
            made.start(ordinal)
        made.wait_ready()
        yield made
    finally:
        made.stop()
        del os.environ["OLD_BARCO"]


def call(
    cluster: JoinedCluster,
    ordinal: int,
    method: str,
    path: str,
    body: bytes = b"",
    fields: dict[str, str] | None = None,
    port: int = 9251,
    **query: Any,
) -> tuple[int, bytes]:
    """One request of a broker; (0, b"") if it does not answer."""
    link = http.client.HTTPConnection(cluster.hosts[ordinal], port, timeout=20)
    try:
        link.request(method, f"{path}?{urlencode(query)}", body, fields or {})
        answer = link.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        link.close()


def send(
    cluster: JoinedCluster, ordinal: int, body: bytes, fields: dict[str, str], **query: Any
) -> int:
    status, _ = call(
        cluster, ordinal, "POST", "/v1/topic/t/messages", body, fields, port=9251, **query
    )
    return status


def taken(cluster: JoinedCluster, ordinal: int) -> bool:
    """Whether an event with a header is stored by now. 500 and 503 are what is said when its leader
    changes, too, as on a busy machine; 0: nothing was."""
    fields = {"Barco-Header-a": "b"}
    status = send(cluster, ordinal, b"0", fields, partitionKey="probe")
    assert status in (200, 500, 503, 0), status
    return status == 200


def take_any(cluster: JoinedCluster) -> None:
    """Its topic takes times however far from now."""
    fields = {"Content-Type": "application/json"}
    body = b'{"timestamps":"any"}'
    until("it takes any", lambda: call(cluster, 0, "PUT", "/v1/topics/t", body, fields)[0] == 200)


def early(cluster: JoinedCluster, ordinal: int) -> bool:
    """Whether an event of before 1970 is stored by now."""
    status = send(cluster, ordinal, b"0", {}, partitionKey="early", timestamp=-5)
    assert status in (200, *REFUSED), status
    return status == 200


def store(
    cluster: JoinedCluster, ordinal: int, body: bytes, fields: dict[str, str], **query: Any
) -> None:
    """Until it is: what is known of an event is by its key, so that it may be there twice."""
    until("it is stored", lambda: send(cluster, ordinal, body, fields, **query) == 200)


def asked(cluster: JoinedCluster, ordinal: int, path: str, **given: Any) -> bytes:
    """What it answers, as soon as somebody leads what is asked for."""

    def answer() -> tuple[bytes] | None:
        status, body = call(cluster, ordinal, "GET", path, port=9252, **given)
        return (body,) if status in (200, 204) else None

    (body,) = until(f"{path} is answered", answer)
    assert isinstance(body, bytes)
    return body


def stored(cluster: JoinedCluster, ordinal: int) -> dict[str, Any]:
    """By key: value and headers, as one broker reads them of those that it holds or asks."""
    found: dict[str, Any] = {}
    answer = asked(cluster, ordinal, "/v1/topic/t/slices")
    for one in json.loads(answer)["slices"]:
        path = f"/v1/topic/t/slices/{one['token']}/{one['index']}/events"
        body = asked(cluster, ordinal, path, fields={"Accept": NDJSON}, maxBytes=1 << 24)
        for line in map(json.loads, body.splitlines()):
            found[line["key"]] = (line["value"], line.get("headers"))
    return found


def format_of(cluster: JoinedCluster, ordinal: int) -> int:
    table = cluster.data(ordinal) / PROCESSES
    return int(json.loads(table.read_text())["format"])


def test_fail_over_and_repair(cluster: JoinedCluster) -> None:
    """Through any broker, on all copies, after a leader died, and on a disk that was replaced."""
    until("all read them", lambda: all(taken(cluster, ordinal) for ordinal in range(3)))
    wanted: dict[str, Any] = {"probe": (0, {"a": "b"})}
    for n in range(120):
        key = f"k{n}"
        fields = {"Barco-Header-n": str(n)} | ({"Barco-Null": "1"} if n % 3 == 0 else {})
        body = b"" if n % 3 == 0 else b"%d" % n
        store(cluster, n % 3, body, fields, partitionKey=key)
        wanted[key] = (None if n % 3 == 0 else n, {"n": str(n)})
    keys = [b"b%d" % n for n in range(200)]
    values = [None if n % 4 == 0 else b"%d" % n for n in range(200)]
    packed = [_native.headers_encode([("m", key)]) if n % 2 else None for n, key in enumerate(keys)]
    batch = _native.batch_encode(values, keys, None, True, packed)
    store(cluster, 1, batch, {"Content-Type": BATCH})
    for n, key in enumerate(keys):
        headers = {"m": key.decode()} if n % 2 else None
        wanted[key.decode()] = (None if n % 4 == 0 else n, headers)
    assert stored(cluster, 0) == wanted
    cluster.kill(2)
    again = {"Barco-Header-a": "b"}

    def all_lead(ordinal: int, *keys: str) -> bool:
        return all(send(cluster, ordinal, b"1", again, partitionKey=key) == 200 for key in keys)

    ys = [f"y{n}" for n in range(24)]
    until("others lead", lambda: all_lead(0, "x") and all_lead(1, *ys))
    wanted |= {key: (1, {"a": "b"}) for key in ("x", *ys)}
    assert stored(cluster, 0) == wanted
    cluster.start(2)
    cluster.wait_ready()
    for ordinal in range(3):
        cluster.wait_in_sync(ordinal)
    cluster.kill(0)
    until("others lead", lambda: all_lead(2, *ys))
    assert stored(cluster, 2) == wanted


def test_brokers_that_are_too_old(old_cluster: JoinedCluster) -> None:
    """Refused until all can read them; then an earlier version refuses the directory, in words."""
    cluster = old_cluster
    old, new = cluster.python, sys.executable
    store(cluster, 0, b"1", {}, partitionKey="a")
    packed = _native.batch_encode([None], [b"n"])
    take_any(cluster)
    before = _native.batch_encode([b"0"], [b"early"], {"timestamp": [-5]})
    for ordinal in (0, 1):
        cluster.stop([ordinal])
        cluster.python = new
        cluster.start(ordinal)
        cluster.wait_ready()
        cluster.wait_in_sync(ordinal)
        for _ in range(3):
            for by in range(3):
                assert not taken(cluster, by) or by == 2, "the third one can not read it"
                store(cluster, by, b"1", {}, partitionKey="a")
            assert send(cluster, ordinal, packed, {"Content-Type": BATCH}) in REFUSED
            assert send(cluster, ordinal, b"1", {}, partitionKey="early", timestamp=-5) in REFUSED
            assert send(cluster, ordinal, before, {"Content-Type": BATCH}) in REFUSED
            later = {"Barco-Deliver-After": "300ms"}
            assert send(cluster, ordinal, b"9", later, partitionKey="later") in REFUSED
            # Who has always sent these never asked for headers: as ever, they are not kept.
            store(cluster, ordinal, b"7", {"ce-id": "x"}, partitionKey="ce")
        assert [format_of(cluster, each) for each in range(3)] == [1, 1, 1]
    cluster.stop([1])  # So far there is a way back.
    cluster.python = old
    cluster.start(1)
    cluster.wait_ready()
    for ordinal in (1, 2):
        cluster.stop([ordinal])
        cluster.python = new
        cluster.start(ordinal)
        cluster.wait_ready()
        cluster.wait_in_sync(ordinal)
    until("all read them", lambda: all(taken(cluster, ordinal) for ordinal in range(3)))
    store(cluster, 2, packed, {"Content-Type": BATCH})
    assert {format_of(cluster, each) for each in range(3)} <= {2, 3}
    later = {"Barco-Deliver-After": "300ms"}
    until("it waits", lambda: send(cluster, 1, b"9", later, partitionKey="later") == 202)
    until("it is delivered", lambda: "later" in stored(cluster, 2))
    assert stored(cluster, 1)["n"] == (None, None) and stored(cluster, 1)["ce"] == (7, None)
    store(cluster, 2, b"8", {"ce-id": "x"}, partitionKey="ce")
    assert stored(cluster, 1)["ce"] == (8, {"ce-id": "x"})
    until("times before 1970 are taken", lambda: all(early(cluster, n) for n in range(3)))
    assert [format_of(cluster, each) for each in range(3)] == [3, 3, 3]
    cluster.stop([1])
    shutil.copy(cluster.log(1), cluster.log(1).with_suffix(".before"))
    cluster.python = old
    cluster.start(1)
    until("it refuses", lambda: cluster.pid(1) is None)
    said = cluster.log(1).read_text()[len(cluster.log(1).with_suffix(".before").read_text()) :]
    assert "format 3, this version of barco reads 1" in said
    until("the other two go on", lambda: taken(cluster, 0))
