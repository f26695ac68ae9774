"""Deliveries are futures, however little they weigh."""

import asyncio
import concurrent.futures
import threading
import time

import pytest

from barco.client.base.future import Delivery


def later(action):
    threading.Timer(0.02, action).start()


def test_result_and_exception():
    done = Delivery()
    assert (done.done(), done.running(), done.cancelled(), done.cancel()) == (
        False, True, False, False,
    )  # fmt: skip
    with pytest.raises(TimeoutError):
        done.result(0)
    later(lambda: done.set_result(7))
    assert done.result(60) == 7
    assert (done.done(), done.running(), done.exception(0)) == (True, False, None)
    with pytest.raises(concurrent.futures.InvalidStateError):
        done.set_result(8)
    failed = Delivery()
    later(lambda: failed.set_exception(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        failed.result(60)
    quick = Delivery()
    quick.set_result(1)
    assert quick.result() == 1


def test_callbacks_before_and_after():
    seen = []
    done = Delivery()
    done.add_done_callback(lambda future: seen.append(future.result()))
    done.add_done_callback(lambda future: 1 / 0)
    done.set_result(1)
    done.add_done_callback(lambda future: seen.append(2))
    assert seen == [1, 2]


def test_the_standard_library_takes_them():
    some = [Delivery() for _ in range(5)]
    for number, each in enumerate(some):
        threading.Timer(0.01 * number, each.set_result, (number,)).start()
    # On a busy machine several are done at once, and then they come in any order.
    came = sorted(each.result() for each in concurrent.futures.as_completed(some, 60))
    assert came == list(range(5))
    some = [Delivery(), Delivery()]
    later(lambda: some[1].set_exception(ValueError()))
    done, waiting = concurrent.futures.wait(some, 5, concurrent.futures.FIRST_EXCEPTION)
    assert (done, waiting) == ({some[1]}, {some[0]})

    async def main():
        one = Delivery()
        later(lambda: one.set_result("x"))
        assert await asyncio.wrap_future(one) == "x"

    asyncio.run(main())


def test_no_wake_up_is_lost():
    rounds = 2_000
    mine, theirs = ([Delivery() for _ in range(rounds)] for _ in range(2))

    def other():
        for number in range(rounds):
            mine[number].set_result(number)
            assert theirs[number].result(60) == number

    thread = threading.Thread(target=other)
    thread.start()
    began = time.monotonic()
    for number in range(rounds):
        assert mine[number].result(60) == number
        theirs[number].set_result(number)
    thread.join()
    assert time.monotonic() - began < 55
