"""The first and the last second of a broker: nothing is refused before, nothing cut off after."""

import os
import random
import socket
import time
from pathlib import Path
from threading import Thread

from running import RunningBroker

from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

EVENT_BYTES = 1 << 20


def test_ready_means_that_every_slice_takes_events(start_broker):
    broker = start_broker(workers=2)
    for turn in range(5):
        if turn:
            assert broker.stop() == 0
            broker.restart()
        answers = [
            broker.request(
                "POST",
                "/v1/topic/first/messages",
                {"partitionKey": f"key-{number}"},
                body=b"1",
                headers={"Content-Type": "application/json"},
                listener="produce",
            )
            for number in range(50)
        ]
        assert [answer.status for answer in answers] == [200] * 50, answers
        assert len({answer.json["rangeIndex"] for answer in answers}) == 8


def test_a_stop_lets_answers_finish(broker):
    rng = random.Random(3)
    for _ in range(12):
        body = rng.randbytes(EVENT_BYTES)
        where = broker.produce("large", body, key="k", kind="application/octet-stream")
    path = f"/v1/topic/large/slices/{where['token']}/{where['rangeIndex']}/events"
    request = (
        f"GET {path}?from=earliest&maxBytes={16 << 20} HTTP/1.1\r\nHost: localhost\r\n"
        "Accept: application/vnd.barco.chunks\r\n\r\n"
    )
    with socket.socket() as client:
        # Small, so that most of the answer stays in the broker.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.settimeout(20)
        client.connect(("127.0.0.1", broker.port()))
        client.sendall(request.encode())
        head, got = b"", b""
        while b"\r\n\r\n" not in head:
            head += client.recv(1024)
        head, _, got = head.partition(b"\r\n\r\n")
        (length,) = [
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        assert head.startswith(b"HTTP/1.1 200 ") and length > 4 << 20
        statuses: list[int] = []
        stopping = Thread(target=lambda: statuses.append(broker.stop()))
        stopping.start()
        received = len(got)
        while received < length:
            piece = client.recv(64 * 1024)
            assert piece, f"cut off after {received} of {length} bytes"
            received += len(piece)
            time.sleep(0.01)
        stopping.join()
        assert statuses == [0]


def test_a_priority_is_that_of_all_processes_and_told(start_broker):
    broker = start_broker(workers=2, broker_nice=7)
    assert broker.request("GET", "/status").json["nice"] == 7
    for pid in [broker.process.pid, *broker.worker_pids()]:
        assert os.getpriority(os.PRIO_PROCESS, pid) == 7


def test_no_process_leaves_a_core(start_broker):
    """Tokens, keys and events are in it. 1 is the limit that a |program of core_pattern meets."""
    broker = start_broker(workers=2)
    for pid in (broker.process.pid, *broker.worker_pids()):
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
        (limit,) = (line.split()[4] for line in lines if line.startswith("Max core file size"))
        assert limit in ("0", "1"), pid


def test_a_stop_while_a_users_body_is_under_way(tmp_path):
    """The connection goes with its worker, and is still its user's: the worker ends by itself."""
    data_dir = tmp_path / "data"
    data_dir.mkdir(mode=0o700)
    add(data_dir / NAME, "root", hash_of("barco_root").hex())
    broker = RunningBroker(data_dir, workers=1, access_required=True)
    broker.start()
    try:
        with socket.create_connection(("127.0.0.1", broker.port("produce")), timeout=30) as client:
            client.sendall(
                b"POST /v1/topic/t/messages HTTP/1.1\r\nHost: localhost\r\n"
                b"Authorization: Bearer barco_root\r\nContent-Length: 1000\r\n"
                b"Expect: 100-continue\r\n\r\n"
            )
            assert client.recv(4096).startswith(b"HTTP/1.1 100"), "it waits for the body"
            client.sendall(b"12")
            assert broker.stop() == 0
    finally:
        broker.end()
    assert '"broker stopped"' in broker.log_path.read_text()
    assert "killed by" not in broker.log_path.read_text()
