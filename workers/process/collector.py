"""When the collector of cycles runs: little at a time, and rarely all of it.

The interpreter counts what was made less what was freed, so that with thousands of requests under
way, each freed while another one comes, a "young" collection may find tens of thousands of objects:
5 to 16 ms in which nobody is served. Hardly anything here is a cycle (an error with its traceback,
perhaps), so that the collector has time. It knows nothing of what requests are.
"""

import gc
import time

YOUNG_REQUESTS = 64
"""After so many there is a look at what they made: 0.2 ms for some thousand objects."""

ALL_SECONDS = 10.0
"""Between two looks at everything that start-up did not make: 20 ms with 6,000 requests under way,
one millisecond without."""


class Collector:
    """Runs the collector of cycles, which the interpreter no longer starts by itself."""

    def __init__(self) -> None:
        self._requests = 0
        self._looked = time.monotonic()

    def take_over(self) -> None:
        """What is there now stays for ever, and is not looked at again."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def asked(self) -> None:
        """One more request has come."""
        self._requests += 1
        if self._requests % YOUNG_REQUESTS == 0:
            gc.collect(0)

    def tidy(self) -> None:
        """Now and then, as often as one likes."""
        now = time.monotonic()
        if now - self._looked >= ALL_SECONDS:
            self._looked = now
            gc.collect()
