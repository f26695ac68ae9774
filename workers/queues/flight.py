"""Who has which events of a window, one after the other, as its marks are: so what is
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
        self._leases: list[Lease | None] = []

    def give(self, start: int, end: int, lease: Lease) -> None:
        """Events that nobody has, to somebody."""
        first = start - self._base
        assert 0 <= first and start < end, "what is before the base is done with"
        if first > len(self._leases):
            self._leases += [None] * (first - len(self._leases))
        self._leases[first : end - self._base] = [lease] * (end - start)
        self.count += end - start

    def get(self, at: int) -> Lease | None:
        """Of an event; None: nobody has it."""
        nth = at - self._base
        return self._leases[nth] if 0 <= nth < len(self._leases) else None

    def let_go(self, start: int, end: int) -> None:
        """Whoever has any of these has them no longer."""
        assert start >= self._base, "what is before the base is done with"
        first = start - self._base
        if end == start + 1:
            self._let_one_go(first)
            return
        found = self._leases[first : end - self._base]
        with_some = len(found) - found.count(None)
        if not with_some:
            return
        self._leases[first : first + len(found)] = [None] * len(found)
        self.count -= with_some
        if not self.count:
            self._leases.clear()
        if found[0] is not None and found.count(found[0]) == with_some:  # Leased together.
            found[0].left -= with_some
            return
        for lease in found:
            if lease is not None:
                lease.left -= 1

    def _let_one_go(self, nth: int) -> None:
        """As `let_go`, in half of the time."""
        if nth >= len(self._leases) or (lease := self._leases[nth]) is None:
            return
        self._leases[nth] = None
        lease.left -= 1
        self.count -= 1
        if not self.count:
            self._leases.clear()

    def move(self, base: int) -> None:
        """The window begins there now; nobody has what is before."""
        del self._leases[: base - self._base]
        self._base = base
