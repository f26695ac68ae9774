"""The library's queue and the commands, at one real broker."""

import asyncio
import json
import subprocess
import sys
import threading
import time

import pytest
from running import RunningBroker

import barco
from barco.errors import ConflictError, NotFoundError


def command(broker: RunningBroker, *args: str) -> subprocess.CompletedProcess[str]:
    endpoint = f"127.0.0.1:{broker.port()}"
    return subprocess.run(
        [sys.executable, "-P", "-m", "barco", *args, "--endpoint", endpoint],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def fill(endpoint: str, count: int, topic: str = "t") -> set[bytes]:
    values = [b'{"n": %d}' % number for number in range(count)]
    with barco.Producer(endpoint) as producer:
        producer.send_many(topic, values, [b"%d" % n for n in range(count)]).result(30)
    return set(values)


def test_a_queue_from_threads(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    with barco.Queue("t", "q", endpoint) as queue:
        with pytest.raises(NotFoundError, match="no queue"):
            queue.lease()
        assert queue.make(lease_seconds=5, ordered="key")["leaseMs"] == 5000
        values = fill(endpoint, 300)
        got: list[barco.QueueEvent] = []
        lock = threading.Lock()

        def work() -> None:
            with barco.Queue("t", "q", endpoint) as own:
                while jobs := own.lease(20, wait_s=1):
                    own.ack(*jobs)
                    with lock:
                        got.extend(jobs)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(each.value or b"" for each in got) == sorted(values)
        assert {each.deliveries for each in got} == {1}
        assert {each.key for each in got} == {b"%d" % n for n in range(300)}
        assert queue.lease() == []


def test_what_a_queue_has_goes_to_others_when_it_is_closed(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    fill(endpoint, 10)
    with barco.Queue("t", "q", endpoint, lease_seconds=20) as queue:
        queue.make()
        had = [each for _ in range(2) for each in queue.lease()]
        assert len(had) == 10
        queue.ack(had[0])
        queue.extend(had[1], seconds=10)
    with barco.Queue("t", "q", endpoint) as other:
        again = [each for _ in range(2) for each in other.lease()]
        assert {each.event[:4] for each in again} == {each.event[:4] for each in had[1:]}
        assert {each.deliveries for each in again} == {2}
        with pytest.raises(ConflictError) as refused:
            other.nack(had[1])
        assert refused.value.fields["events"] == [had[1].id]
        other.nack(*again, delay_s=0.2, reason="later")
        began = time.monotonic()
        assert other.lease(wait_s=20) and time.monotonic() - began < 15


def test_more_than_can_be_named_at_once_is_given_back(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    count = 12_000
    fill(endpoint, count)
    with barco.Queue("t", "q", endpoint) as queue:
        queue.make(max_in_flight=10_000, lease_seconds=600)
        had = 0
        while jobs := [each for _ in range(2) for each in queue.lease(1000)]:
            had += len(jobs)
        assert had == count
    seen = 0
    with barco.Queue("t", "q", endpoint) as other:
        while jobs := [each for _ in range(2) for each in other.lease(1000)]:
            assert {each.deliveries for each in jobs} == {2}
            seen += len(jobs)
            other.ack(*jobs)
    assert seen == count


def test_a_resend_goes_to_the_topic_that_was_named(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    with barco.Producer(endpoint) as producer:
        for origin, value in (("t", b"1"), ("secret", b"2")):
            headers = [("barco-dead-topic", origin.encode()), ("kept", b"x")]
            producer.send("t.dead", value, b"key", headers=headers).result(30)
    told = command(broker, "dead", "resend", "t", "--all", "--json")
    assert json.loads(told.stdout) == {"sent": 1, "marked": 1, "others": 1}
    with barco.Admin(f"127.0.0.1:{broker.port('discovery')}") as admin:
        assert [each["topic"] for each in admin.topics()] == ["t", "t.dead"]
    assert command(broker, "dead", "resend", "t", "--all").returncode == 1, "it was sent"
    told = command(broker, "dead", "resend", "t", "--all", "--marked", "--json")
    assert json.loads(told.stdout)["sent"] == 1
    assert len(list(barco.read("t", f"127.0.0.1:{broker.port('discovery')}"))) == 2
    with barco.Admin(f"127.0.0.1:{broker.port('discovery')}") as admin:
        admin.delete_topic("t")
        admin.create_topic("t")
        listed = [each for each in barco.read("t.dead", endpoint) if each.value == b"1"]
        assert admin.resend_dead("t", listed)["done"] == 1
    (event,) = barco.read("t", f"127.0.0.1:{broker.port('discovery')}")
    assert (event.value, event.key, list(event.headers)) == (b"1", b"key", [("kept", b"x")])
    other = command(broker, "dead", "resend", "secret", "--all", "--dead", "t.dead")
    assert other.returncode == 0 and "1 sent" in other.stderr


def test_in_a_loop(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    fill(endpoint, 5)

    async def main() -> int:
        count = 0
        async with barco.AsyncQueue("t", "q", endpoint) as queue:
            await queue.make()
            async for each in queue:
                await queue.ack(each)
                count += 1
                if count == 5:
                    return count
        return -1

    assert asyncio.run(main()) == 5


def test_the_commands(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    made = command(broker, "queue", "make", "q", "--topic", "t", "--max-deliveries", "1")
    assert made.returncode == 0, made
    fill(endpoint, 4)
    program = f"{sys.executable} -c \"import json, sys; sys.exit(json.load(sys.stdin)['n'] % 2)\""
    took = command(broker, "queue", "take", "q", "--topic", "t", "--run", program)
    assert took.returncode == 1 and "2 events were given back" in took.stderr
    told = command(broker, "queue", "describe", "q")
    assert told.returncode == 0 and "maxDeliveries 1" in told.stdout, told
    listed = command(broker, "dead", "list", "t")
    assert listed.stdout.count("exit code 1") == 2, listed
    shown = [
        json.loads(line)
        for line in command(broker, "dead", "show", "t", "--json").stdout.splitlines()
    ]
    assert sorted(each["value"]["n"] for each in shown) == [1, 3]
    assert command(broker, "dead", "resend", "t").returncode == 2
    one = shown[0]
    where = ("--slice", str(one["slice"]), "--offset", str(one["offset"]))
    resent = command(broker, "dead", "resend", "t", *where)
    assert resent.returncode == 0 and "1 sent" in resent.stdout + resent.stderr
    again = command(broker, "queue", "take", "q", "--topic", "t", "--json", "--count", "1")
    event = json.loads(again.stdout)
    assert event["value"] == one["value"] and event["key"] == one["key"]
    assert "headers" not in event
    assert command(broker, "queue", "delete", "q").returncode == 0
    assert command(broker, "queue", "describe", "q").returncode == 1


def test_a_topic_without_dead_letters_has_none_and_a_misspelt_one_is_told(
    broker: RunningBroker,
) -> None:
    with barco.Admin(f"127.0.0.1:{broker.port('discovery')}") as admin:
        admin.create_topic("t")
    none = command(broker, "dead", "show", "t")
    assert (none.returncode, none.stdout) == (0, "")
    for asked in (("tt",), ("t", "--dead", "tt")):
        wrong = command(broker, "dead", "list", *asked)
        assert wrong.returncode == 1 and "There is no topic tt." in wrong.stderr, asked
