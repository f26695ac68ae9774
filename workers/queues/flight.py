"""Who has which events of a window: a place for each event, as marks have it, so that what is
leased and acknowledged together is written and found in one go and not one by one."""

from msgspec import Struct


class Lease(Struct, eq=False):
    """What was handed out at once."""

    until: int
    count: int
    left: int
    """How many of its events are still with who got them."""


class InFlight:
    """Of the events from the window's base on; of those before nobody has any."""

    def __init__(self, base: int) -> None:
        self.count = 0
        """Events that somebody has."""
        self._base = base
        self._places: list[Lease | None] = []

    def give(self, start: int, end: int, lease: Lease) -> None:
        """Events that nobody has, to somebody."""
        first = start - self._base
        assert 0 <= first and start < end, "what is before the base is done with"
        if first > len(self._places):
            self._places += [None] * (first - len(self._places))
        self._places[first : end - self._base] = [lease] * (end - start)
        self.count += end - start

    def get(self, at: int) -> Lease | None:
        """Of an event; None: nobody has it."""
        place = at - self._base
        return self._places[place] if 0 <= place < len(self._places) else None

    def let_go(self, start: int, end: int) -> None:
        """Whoever has any of these has them no longer."""
        assert start >= self._base, "what is before the base is done with"
        first = start - self._base
        if end == start + 1:
            self._let_one_go(first)
            return
        found = self._places[first : end - self._base]
        with_some = len(found) - found.count(None)
        if not with_some:
            return
        self._places[first : first + len(found)] = [None] * len(found)
        self.count -= with_some
        if not self.count:
            self._places.clear()
        if found[0] is not None and found.count(found[0]) == with_some:  # Leased together.
            found[0].left -= with_some
            return
        for lease in found:
            if lease is not None:
                lease.left -= 1

    def _let_one_go(self, place: int) -> None:
        """As `let_go`, in half of the time."""
        if place >= len(self._places) or (lease := self._places[place]) is None:
            return
        self._places[place] = None
        lease.left -= 1
        self.count -= 1
        if not self.count:
            self._places.clear()

    def move(self, base: int) -> None:
        """The window begins there now; nobody has what is before."""
        del self._places[: base - self._base]
        self._base = base
