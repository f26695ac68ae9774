"""The memory of answers that are being put together, or that clients have not read yet."""

import functools
import weakref

from barco.errors import BusyError
from barco.limits import CHUNK_RAW_BYTES_MAX
from barco.workers.http.messages import Part

SHARE = 4
"""One answer takes a quarter of what is left at most, so that many may be under way at once."""


class AnswerMemory:
    """A budget. Under pressure answers become smaller; when it is used up, requests get 503."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._sending: dict[int, weakref.ref[memoryview]] = {}

    def take(self, wanted: int) -> int:
        """Reserve memory for reading: returns how many bytes may be read now, at most `wanted`."""
        if self.used >= self.bytes_max:
            raise BusyError("Clients have not read the answers that are waiting for them.")
        granted = min(wanted, max((self.bytes_max - self.used) // SHARE, CHUNK_RAW_BYTES_MAX))
        self.used += granted
        return granted

    def give_back(self, granted: int) -> None:
        """The opposite of `take`."""
        self.used -= granted
        assert self.used >= 0, "given back twice"

    def counted(self, parts: list[Part]) -> list[Part]:
        """The same body; it counts until its last part has been sent and let go of."""
        if not parts:
            return parts
        size = sum(len(part) for part in parts)
        last = memoryview(parts[-1])
        self.used += size
        # The reactor takes the view itself, and lets go of it when it is sent or never will be.
        self._sending[id(last)] = weakref.ref(last, functools.partial(self._sent, id(last), size))
        return [*parts[:-1], last]

    def _sent(self, key: int, size: int, _: object) -> None:
        del self._sending[key]
        self.used -= size
