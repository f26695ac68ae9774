"""Keeps what a job has staged while one of its tasks runs, however long that stages nothing: what
nobody adds to for an hour has no driver any more, as far as a shard can know."""

import threading

from barco.client.wire.access import Access
from barco.client.wire.ring import Ring
from barco.limits import STAGED_SECONDS_MAX
from barco.spark.write.commit import Shard

ALIVE_SECONDS = STAGED_SECONDS_MAX / 6
ANSWER_SECONDS = 5.0

_BODY = b'{"state":"staged"}'


class Alive(threading.Thread):
    """From now until `end`: a sign of life to every process that holds a shard."""

    def __init__(self, access: Access, ring: Ring, path: str) -> None:
        super().__init__(name="barco-alive", daemon=True)
        self._endpoints = sorted({each for holders in ring.holders.values() for each in holders})
        self._access = access
        self._path = path
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(ALIVE_SECONDS):
            for endpoint in self._endpoints:
                shard = Shard(self._access, endpoint, 0, socket_s=ANSWER_SECONDS)
                try:
                    shard.once(self._path, _BODY, "application/json")
                except OSError:
                    pass  # It is not there: others are, and there is a next time.
                finally:
                    shard.close()

    def end(self) -> None:
        """No more of them."""
        self._ended.set()
