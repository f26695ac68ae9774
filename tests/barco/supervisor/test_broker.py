"""The supervisor with real processes and sockets: start, restart, refusal, drain, death."""

import json
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from barco.model.ranges import ProcessTable, directory_of
from barco.supervisor import datadir

from .conftest import Fake, cluster_config, is_alive, wait_until

Start = Callable[..., Fake]


def test_start_and_drain(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    assert broker.ready["event"] == "ready" and broker.ready["pid"] == broker.process.pid
    assert set(broker.ready["ports"]) == {"discovery", "produce", "consume", "metrics"}
    assert len(broker.ready["shards"]) == len(broker.ready["workers"]) == 2
    assert [broker.state(shard)["worker"] for shard in (0, 1)] == [0, 1]
    identity = json.loads((broker.data_dir / "broker.json").read_text())
    assert identity["workers"] == 2 and identity["slices_per_range"] == 8
    assert stat.S_IMODE(broker.data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((broker.data_dir / "run").stat().st_mode) == 0o700
    assert broker.stop() == 0
    assert not any(is_alive(pid) for pid in broker.ready["workers"])
    assert broker.messages().count("worker stopped") == 2


def test_it_is_noted_once_all_are_up_that_journals_say_whose_they_are(
    start: Start, tmp_path: Path
) -> None:
    """Of a directory of an earlier version: too early, and one of them could never start again."""
    path = tmp_path / "data"
    identity = datadir.format_data_dir(path, workers=2, slices_per_range=8)
    datadir.write_table(path, identity, identity.first_table())
    broker = start("--workers", "2", fake="hang")
    wait_until(lambda: broker.messages().count("worker started") == 2)
    assert not datadir.journals_named(path)
    broker.process.kill()
    broker.process.wait(30)
    assert not datadir.journals_named(path)
    assert start("--workers", "2").wait_ready().stop() == 0
    assert datadir.journals_named(path)


def test_every_worker_listens_on_every_public_port(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    for port in ("discovery", "produce", "consume", "metrics"):
        seen = {json.loads(broker.ask("state", port))["worker"] for _ in range(60)}
        assert seen == {0, 1}, port


def test_a_broker_of_a_cluster_runs_a_process_for_each_replica(
    start: Start, tmp_path: Path
) -> None:
    config = cluster_config(tmp_path / "b1.toml", 1)
    broker = start(*config, "--workers", "2").wait_ready()
    assert len(broker.ready["shards"]) == len(broker.ready["workers"]) == 6
    states = [broker.state(shard) for shard in range(6)]
    assert [state["worker"] for state in states] == list(range(6))
    assert [state["core"] for state in states[:2]] * 3 == [state["core"] for state in states]
    assert states[0]["members"] == [1, 2, 0]
    assert states[5]["members"] == [2, 0, 1]
    assert [len(state["listeners"]) for state in states] == [6, 6, 2, 2, 2, 2]
    seen = {json.loads(broker.ask("state", "produce"))["worker"] for _ in range(60)}
    assert seen == {0, 1}
    os.kill(broker.ready["workers"][4], signal.SIGKILL)
    assert broker.state(4)["pid"] != broker.ready["workers"][4]
    assert broker.state(3)["pid"] == broker.ready["workers"][3]
    assert broker.stop() == 0
    assert json.loads((broker.data_dir / "broker.json").read_text())["ring_size"] == 3


def test_a_directory_of_another_broker_is_refused(start: Start, tmp_path: Path) -> None:
    config = cluster_config(tmp_path / "b.toml", 1, uuid="ab" * 16)
    assert start(*config, "--workers", "1").wait_ready().stop() == 0
    text = (tmp_path / "b.toml").read_text()
    for before, after, words in (
        ("ordinal = 1", "ordinal = 2", "belongs to the broker with ordinal 1, this one has 2"),
        ("ab" * 16, "cd" * 16, f"belongs to cluster {'ab' * 16}, the configuration is of"),
    ):
        (tmp_path / "b.toml").write_text(text.replace(before, after))
        code, last = start(*config).end()
        assert code == 78 and words in last
    code, last = start().end()
    assert code == 78 and "formatted for a broker of a cluster, not for a single broker" in last


def test_a_second_start_keeps_the_identity(start: Start) -> None:
    first = start("--workers", "1").wait_ready()
    identity = (first.data_dir / "broker.json").read_text()
    assert first.stop(signal.SIGINT) == 0
    second = start().wait_ready()
    assert (second.data_dir / "broker.json").read_text() == identity
    assert len(second.ready["workers"]) == 1
    assert second.stop() == 0


def test_a_worker_that_dies_is_restarted_with_its_sockets(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    other, victim = broker.ready["workers"]
    os.kill(victim, signal.SIGKILL)
    # No retry here: a connection waits in the backlog until the new worker takes it.
    state = broker.state(1)
    assert state["worker"] == 1 and state["pid"] not in (other, victim)
    assert broker.state(0)["pid"] == other
    assert any("was killed by SIGKILL" in message for message in broker.messages())
    assert broker.stop() == 0


def test_a_worker_that_dies_once_at_its_start(start: Start) -> None:
    broker = start("--workers", "2", fake="die,once").wait_ready()
    messages = broker.messages()
    assert any("cannot open the log: the disk is made of cheese" in text for text in messages)
    assert broker.stop() == 0


@pytest.mark.parametrize(
    ("fake", "last_word"),
    [
        ("die", "exited with status 3: cannot open the log: the disk is made of cheese"),
        ("trace", "exited with status 1: RuntimeError: the disk is made of cheese"),
        ("die-ready", "exited with status 3"),
        ("garbage", "was killed by SIGKILL because it broke the protocol of its channel"),
    ],
)
def test_a_crash_loop_ends_with_a_last_word(start: Start, fake: str, last_word: str) -> None:
    broker = start("--workers", "2", fake=f"{fake},only-1")
    code, line = broker.end()
    assert code == 1
    assert line.startswith("barco: worker 1 died 5 times within 30 s, giving up: it ")
    assert last_word in line


@pytest.mark.parametrize("holds", [False, True], ids=["nothing", "events"])
def test_a_range_that_came_later_ends_nobody_while_it_holds_nothing(
    start: Start, *, holds: bool
) -> None:
    first = start("--workers", "2").wait_ready()
    assert first.stop() == 0
    identity = datadir.load(first.data_dir)
    table = datadir.read_table(first.data_dir, identity)
    later = replace(table.at(1), genesis=False)
    made = ProcessTable((table.at(0), later))
    datadir.write_table(first.data_dir, identity, made)
    if holds:
        (first.data_dir / directory_of(later.token) / "gen-0000000001").mkdir(parents=True)
    broker = start(fake="die,only-1", limits={"RESTART_BACKOFF_SECONDS_MAX": 0.3})
    if holds:
        code, line = broker.end()
        assert code == 1 and "worker 1 died 5 times within 30 s, giving up" in line
        return
    broker.wait_ready()
    died = "cannot open the log: the disk is made of cheese"
    wait_until(lambda: sum(died in text for text in broker.messages()) > 7)
    assert broker.state(0)["worker"] == 0
    assert broker.stop() == 0


def test_a_refused_configuration_is_not_tried_again(start: Start) -> None:
    code, line = start("--workers", "1", fake="config").end()
    assert code == 78
    assert line == ("barco: storage.segment_bytes does not fit this disk")


@pytest.mark.parametrize(
    ("fake", "limit"),
    [("mute,once", "HEARTBEAT_SILENCE_SECONDS_MAX"), ("hang,once", "WORKER_START_SECONDS_MAX")],
)
def test_a_silent_worker_is_killed_and_restarted(start: Start, fake: str, limit: str) -> None:
    broker = start("--workers", "1", fake=fake, limits={limit: 6.0}).wait_ready()
    wait_until(lambda: any("was silent for 6 s" in text for text in broker.messages()))
    assert wait_until(lambda: broker.state(0))["worker"] == 0
    assert broker.stop() == 0


def test_a_supervisor_that_was_stopped_does_not_blame_its_workers(start: Start) -> None:
    limits = {"HEARTBEAT_SILENCE_SECONDS_MAX": 9.0}  # A busy disk holds a worker up for some.
    broker = start("--workers", "1", limits=limits).wait_ready()
    broker.process.send_signal(signal.SIGSTOP)
    time.sleep(10.5)
    broker.process.send_signal(signal.SIGCONT)
    time.sleep(0.5)
    assert broker.state(0)["pid"] == broker.ready["workers"][0], broker.messages()


def test_who_does_not_drain_is_killed(start: Start) -> None:
    broker = start("--workers", "2", fake="deaf,only-1", limits={"DRAIN_SECONDS_MAX": 1.0})
    broker.wait_ready()
    began = time.monotonic()
    assert broker.stop() == 0
    assert 1.0 <= time.monotonic() - began < 24
    assert any("had not drained after 1 s" in text for text in broker.messages())
    assert not any(is_alive(pid) for pid in broker.ready["workers"])


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    broker = start("--workers", "2", fake="deaf").wait_ready()
    broker.process.send_signal(signal.SIGINT)
    wait_until(lambda: any(text.startswith("stopping") for text in broker.messages()))
    began = time.monotonic()
    assert broker.stop(signal.SIGINT) == 1
    assert time.monotonic() - began < 24
    assert not any(is_alive(pid) for pid in broker.ready["workers"])


def test_ctrl_c_reaches_the_group_but_workers_are_drained(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    os.killpg(broker.process.pid, signal.SIGINT)
    assert broker.process.wait(60) == 0
    assert broker.messages().count("worker stopped") == 2


def test_a_stop_while_starting(start: Start) -> None:
    broker = start("--workers", "2", fake="hang", limits={"DRAIN_SECONDS_MAX": 0.5})
    wait_until(lambda: broker.log.exists() and "worker started" in broker.messages())
    assert broker.stop() == 0


def test_sighup_without_a_file_changes_nothing(start: Start) -> None:
    broker = start("--workers", "1").wait_ready()
    said = "configuration read again: it is as it was"
    for times in (1, 2):
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda times=times: broker.messages().count(said) == times)
    assert broker.state(0)["pid"] == broker.ready["workers"][0]


def test_sighup_takes_up_a_file_or_refuses_it_whole(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text("")
    broker = start("--config", str(file), "--workers", "1").wait_ready()

    def reload(text: str, words: str) -> None:
        file.write_text(text)
        broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any(words in line for line in broker.messages()))

    reload(
        "[topic]\nx = 1\n", f"reload refused, all of it, and nothing is changed: {file}: unknown"
    )
    reload("[broker]\nnice = 99\n", "nothing is changed: broker.nice = 99: must be from")
    reload('[broker]\nbind = "0.0.0.0"\n', "would let other machines in")
    reload("[cluster]\nslices_per_range = 16\n", "was formatted with 8 slices, not with")
    listed = json.dumps([f"127.0.0.{each}" for each in (1, 2, 3)])
    reload(f"[cluster]\nbrokers = {listed}\n[broker]\nordinal = 0\n", "has no free choice of ports")
    reload(
        "[topics]\nretention_hours = 5\n[limits]\nmemory_bytes = 134217728\n",
        "read again: only the next start takes up topics.retention_hours, limits.memory_bytes",
    )
    file.unlink()
    reload_line = f"nothing is changed: cannot read {file}: No such file"
    broker.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any(reload_line in line for line in broker.messages()))
    assert broker.state(0)["pid"] == broker.ready["workers"][0]


def test_sighup_before_it_runs_is_not_its_end(start: Start, tmp_path: Path) -> None:
    """It waits for its configuration here, and reads it once more when it runs."""
    file, done = tmp_path / "one.toml", threading.Event()
    os.mkfifo(file)
    broker = start("--config", str(file), "--workers", "1")

    def tell() -> None:
        with open(file, "w") as to:  # Now somebody reads.
            broker.process.send_signal(signal.SIGHUP)
            time.sleep(0.1)
            to.write("# as it was\n")
        while not done.is_set():
            with suppress(BrokenPipeError), open(file, "w") as to:
                to.write("# as it was\n")
            time.sleep(0.05)  # Else it may be the last reader, who has just gone.

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        broker.wait_ready()
        wait_until(lambda: "configuration read again: it is as it was" in broker.messages())
    finally:
        done.set()
        os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))  # It may wait for a reader.
        teller.join(5)


def test_systemd_is_told_of_a_reload(tmp_path: Path, start: Start) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        broker = start("--workers", "1", notify=str(tmp_path / "notify")).wait_ready()
        broker.process.send_signal(signal.SIGHUP)
        told = []
        while not any("RELOADING=1" in text for text in told[:-1]):
            told.append(manager.recv(4096).decode())
        assert told[-2].startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert told[-1] == "READY=1\nSTATUS=configuration read again: it is as it was"


def test_workers_die_with_their_supervisor_and_free_its_directory(start: Start) -> None:
    first = start("--workers", "2", fake="deaf").wait_ready()
    first.process.kill()
    second = start().wait_ready()
    assert not any(is_alive(pid) for pid in first.ready["workers"])
    assert second.stop() == 0


def test_a_directory_in_use(start: Start) -> None:
    first = start("--workers", "1").wait_ready()
    code, line = start().end()
    assert code == 1
    assert f"is in use by process {first.process.pid}: stop that broker" in line
    assert first.state(0)["worker"] == 0


def test_a_port_in_use(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, line = start("--workers", "1", "--ports-from", str(port)).end()
    assert code == 1
    assert f"ports.discovery (127.0.0.1:{port}) is in use by another process" in line


def test_two_brokers_do_not_share_a_port(start: Start) -> None:
    first = start("--workers", "1").wait_ready()
    port = first.ready["ports"]["consume"]
    code, line = start("--workers", "1", "--ports-from", str(port), name="other").end()
    assert code == 1 and "is in use by another process" in line


def test_other_machines_are_not_let_in_by_accident(start: Start) -> None:
    code, line = start("--bind", "0.0.0.0").end()
    assert code == 78
    assert "tls.certificate" in line and "--insecure-allow-open" in line
    assert "barco users first" in line and "access.required = true" in line


def test_other_machines_are_let_in_when_asked_for_loudly(start: Start) -> None:
    open_ = ("--bind", "0.0.0.0", "--insecure-allow-open", "--workers", "1")
    code, line = start(*open_, name="untold").end()
    assert code == 78 and "set broker.advertise" in line
    broker = start(*open_, "--advertise", "localhost").wait_ready()
    assert broker.ready["shards"][0].startswith("localhost:")
    assert any("open to everyone" in text for text in broker.messages())
    assert broker.stop() == 0


def test_another_number_of_workers_is_asked_for_until_it_is_granted(start: Start) -> None:
    """Nobody grants anything here: each start asks again, and runs what it has."""
    assert start("--workers", "2").wait_ready().stop() == 0
    for _ in range(2):
        broker = start("--workers", "4").wait_ready()
        assert [broker.state(each)["workers_asked"] for each in range(2)] == [4, 4]
        assert broker.stop() == 0
    broker = start("--workers", "2").wait_ready()
    assert broker.state(0)["workers_asked"] == 0, "that is what it has"
    assert broker.ask("granted", shard=0) == "granted"
    assert broker.stop() == 0
    broker = start("--workers", "4").wait_ready()
    assert broker.ask("granted", shard=1) == "granted"
    os.kill(broker.ready["workers"][0], signal.SIGKILL)
    assert broker.state(0)["workers_asked"] == 0, "its next life asks for nothing"
    assert broker.stop() == 0
    for words, asked in (("4", 0), ("2", 2), ("0", 0)):
        broker = start("--workers", words).wait_ready() if words != "0" else start().wait_ready()
        assert broker.state(0)["workers_asked"] == asked
        assert broker.stop() == 0


def test_more_workers_than_cores_share_them(start: Start) -> None:
    broker = start("--workers", "4").wait_ready()
    cores = [broker.state(shard)["core"] for shard in range(4)]
    assert set(cores) <= os.sched_getaffinity(0)
    if (count := len(os.sched_getaffinity(0))) < 4:
        said = [text for text in broker.messages() if f"4 processes share {count} cores" in text]
        assert len(said) == 1, "once, and not for each of them"


def test_a_registration_is_answered_when_all_workers_know(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    before = broker.state(1)["version"]
    assert broker.ask("register alice", shard=0) == "asked"
    replies = wait_until(lambda: broker.state(0)["replies"])
    assert replies[0]["ok"] and replies[0]["id"] == 1
    assert broker.state(1)["version"] >= replies[0]["result"]["version"] > before


def test_a_registration_waits_for_a_blind_worker_only_so_long(start: Start) -> None:
    broker = start("--workers", "2", fake="blind,only-1", limits={"VIEW_SECONDS_MAX": 0.5})
    broker.wait_ready()
    broker.ask("register alice", shard=0)
    replies = wait_until(lambda: broker.state(0)["replies"])
    assert replies[0]["ok"] is False and replies[0]["status"] == 503


def test_a_restarted_worker_gets_the_view(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    broker.ask("register alice", shard=0)
    version = wait_until(lambda: broker.state(0)["replies"])[0]["result"]["version"]
    os.kill(broker.ready["workers"][1], signal.SIGKILL)
    wait_until(lambda: broker.state(1)["version"] >= version)


def test_systemd_is_told(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        broker = start("--workers", "1").wait_ready()
        for awaited in (b"READY=1", b"WATCHDOG=1"):  # How many of the second come first depends.
            wait_until(lambda awaited=awaited: manager.recv(1000).split(b"\n")[0] == awaited)
        assert broker.stop() == 0
        wait_until(lambda: manager.recv(1000).startswith(b"STOPPING=1"))
