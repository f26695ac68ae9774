"""A forked child that uses its parent's clients is told so, and leaves the parent's alone."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

from running import RunningBroker

import barco
from barco.client.base.errors import ForkedError

SECONDS = 60.0


def in_a_child(work: Callable[[], None]) -> None:
    """Has the work done in a forked child, which must come to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - it must not go on as pytest.
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    deadline = time.monotonic() + SECONDS
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def refused(call: Callable[[], object]) -> None:
    try:
        call()
    except ForkedError as error:
        assert "make one in each process" in error.detail
    else:
        raise AssertionError("it was not refused")


def test_clients_of_the_parent_are_refused_in_a_child(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    with (
        barco.Producer(endpoint) as producer,
        barco.Consumer("t", group="g", start="earliest", endpoint=endpoint) as consumer,
        barco.Admin(endpoint) as admin,
    ):
        producer.send("t", b"1").result(SECONDS)

        def child() -> None:
            refused(lambda: producer.send("t", b"2"))
            refused(lambda: producer.send_many("t", [b"2"]))
            refused(producer.flush)
            refused(consumer.poll)
            refused(consumer.commit)
            refused(admin.topics)
            for client in (producer, consumer, admin):
                client.close()  # Nothing of its own: no goodbye in the parent's name.
            with barco.Producer(endpoint) as own:
                own.send("t", b"3").result(SECONDS)

        in_a_child(child)
        found: list[bytes | None] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < 2 and time.monotonic() < deadline:  # Of any slices: a poll has some.
            found += [event.value for event in consumer.poll(1.0)]
        assert sorted(map(str, found)) == ["b'1'", "b'3'"]
        assert consumer.commit()
        assert producer.send("t", b"4").result(SECONDS)
        assert admin.group("g")["members"], "the parent's consumer is still there"


def test_a_fork_while_a_lock_is_held_does_not_hang(broker: RunningBroker) -> None:
    """Another thread of the parent was in the producer: its lock is never let go in the child."""
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    with barco.Producer(endpoint) as producer:
        lock = producer._sender._lock
        with lock:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    import threading

                    def use() -> None:
                        refused(lambda: producer.send("t", b"2"))
                        os._exit(0)

                    thread = threading.Thread(target=use)
                    thread.start()
                    thread.join(SECONDS)
                finally:
                    os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
