"""The command line against a real broker, as a shell uses it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from running import RunningBroker

from barco.supervisor.tied import start_tied


def barco(
    broker: RunningBroker, *arguments: str, given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "barco", *arguments],
        input=given,
        capture_output=True,
        env={**os.environ, "BARCO_ENDPOINT": f"127.0.0.1:{broker.port('discovery')}"},
        timeout=60,
        check=False,
    )


def test_a_first_quarter_of_an_hour(broker: RunningBroker, tmp_path: Path) -> None:
    def ok(*arguments: str, given: bytes = b"") -> str:
        done = barco(broker, *arguments, given=given)
        assert done.returncode == 0, done
        return done.stdout.decode()

    def ok_json(*arguments: str) -> Any:
        return json.loads(ok(*arguments, "--json"))

    assert ok_json("status")["status"]["status"] == "ready"
    assert "io_uring" in ok("status") or "epoll" in ok("status")
    assert "a single broker has the only copy" in ok("top", "--once")
    ok("produce", "greetings", given=b'{"hello": 1}\n')
    assert ok("consume", "greetings", "--values") == '{"hello": 1}\n'
    file = tmp_path / "in.ndjson"
    file.write_text("".join(f'{{"k":"{n % 9}","n":{n}}}\n' for n in range(20_000)))
    assert ok_json("load", str(file), "--topic", "t", "--key-field", "k")["events"] == 20_000
    topics = {topic["topic"]: topic["events"] for topic in ok_json("topics", "list")}
    assert topics == {"greetings": 1, "t": 20_000}
    first = ok("consume", "t", "--group", "g", "--count", "7000", "--values")
    rest = ok("consume", "t", "--group", "g", "--values")
    events = [json.loads(line) for line in (first + rest).splitlines()]
    for key in range(9):
        numbers = [event["n"] for event in events if event["k"] == str(key)]
        assert numbers == list(range(key, 20_000, 9))
    group = ok_json("groups", "describe", "g")
    assert (group["lag"], group["members"]) == (0, [])
    assert ok_json("groups", "seek", "g", "--topic", "t", "--to", "earliest")
    assert ok_json("groups", "describe", "g")["lag"] == 20_000
    assert "20,000" in ok("groups", "describe", "g")
    assert ok_json("groups", "list") == [{"group": "g", "members": 0}]
    assert ok_json("topics", "create", "t", "--retention-hours", "5")["retentionHours"] == 5
    assert ok_json("topics", "alter", "t", "--retention-bytes", "7")["retentionBytes"] == 7
    assert ok_json("topics", "describe", "t")["retentionHours"] == 5, "the other one stays"
    assert "20,000" in ok("topics", "describe", "t")
    ok("topics", "delete", "t", "--yes")
    ok("groups", "delete", "g")
    assert [topic["topic"] for topic in ok_json("topics", "list")] == ["greetings"]


def test_what_goes_wrong_is_one_line_and_an_exit_code(broker: RunningBroker) -> None:
    for code, *arguments in (
        (1, "consume", "nothing"),
        (1, "topics", "describe", "nothing"),
        (1, "topics", "alter", "nothing", "--retention-hours", "5"),
        (2, "topics", "alter", "greetings"),
        (1, "groups", "describe", "nothing"),
        (1, "produce", "__offsets"),
        (2, "topics", "delete", "t"),
        (2, "produce", "a b"),
        (1, "status", "--endpoint", "127.0.0.1:1", "--timeout", "0.2"),
    ):
        done = barco(broker, *map(str, arguments), given=b"x\n")
        assert (done.returncode, done.stdout) == (code, b""), done
        assert b"Traceback" not in done.stderr
        assert code == 2 or done.stderr.count(b"\n") == 1, done.stderr


def test_a_reader_that_leaves_ends_the_writer(broker: RunningBroker) -> None:
    barco(broker, "produce", "t", given=b"".join(b"%d\n" % n for n in range(100_000)))
    environment = {**os.environ, "BARCO_ENDPOINT": f"127.0.0.1:{broker.port('discovery')}"}
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -P -m barco consume t --values | head -3"],
        capture_output=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert (done.stdout.count(b"\n"), done.stderr) == (3, b"")


def test_a_reader_that_has_left_is_no_failure(broker: RunningBroker, tmp_path: Path) -> None:
    """`barco status | head -0` ended with 1: what prints tables had an own opinion."""
    barco(broker, "produce", "t", given=b"1\n2\n")
    barco(broker, "consume", "t", "--group", "g")
    (tmp_path / "in").write_text("3\n")
    for words in (
        *("status", "status --json", "ring", "ring --svg -", "topics list", "topics describe t"),
        *("groups list", "groups describe g", "groups seek g --topic t --to earliest"),
        *("consume t", f"load {tmp_path}/in --topic t", f"dump {broker.data_dir}", "--help"),
    ):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "barco", *words.split()],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            env={**os.environ, "BARCO_ENDPOINT": f"127.0.0.1:{broker.port('discovery')}"},
            timeout=60,
            check=False,
        )
        os.close(writer)
        assert done.returncode == 0, (words, done)
        assert not any(word in done.stderr for word in (b"barco:", b"Traceback", b"ignored")), done


def test_a_terminated_consumer_leaves_its_group(broker: RunningBroker) -> None:
    barco(broker, "produce", "t", given=b"1\n")
    command = [sys.executable, "-P", "-m", "barco", "consume", "t", "--group", "g", "--follow"]
    command += ["--values", "--endpoint", f"127.0.0.1:{broker.port('discovery')}"]
    with start_tied(command, stdout=subprocess.PIPE) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"1\n"
        time.sleep(0.5)  # By now it has asked for more.
        consumer.terminate()
        assert consumer.wait(40) == 143
    group = json.loads(barco(broker, "groups", "describe", "g", "--json").stdout)
    assert (group["members"], group["lag"]) == ([], 0)
