"""Who leads each range of the ring, as far as this worker has heard.

News comes from this worker's own replica, from its siblings and from gossip, in any order; what
counts of it `barco.cluster.ring.heard` says. Within one generation it is later that its leader has
stopped: then nobody leads, until the next one is known.
"""

from collections.abc import Callable, Iterable, Sequence

from barco.cluster.ring.routes import RangeRoute, unpack_route
from barco.model.ranges import peer_of
from barco.model.replicas import Process
from barco.workers.peers.ranges import RingRange, RingRanges

News = Sequence[bytes | bool]
"""[a route as bytes, whether its leader has stopped], as frames carry it."""


class Leaders:
    """The leader of every range; they are named by their tokens."""

    def __init__(self, ranges: RingRanges, *, alone: bool) -> None:
        """`alone`: in a ring of one that was never split, where nobody else ever leads."""
        self._ranges = ranges
        self._alone = alone
        self._me = ranges.me
        self._stopped: dict[int, int] = {}
        """By token the epoch whose leader has stopped."""
        self._peers: dict[int, int | None] = {}  # Asked for several times with each poll.
        self._leading: tuple[int, ...] | None = None
        self._shown: dict[int, tuple[range, Process | None]] = {}
        self.on_change: Callable[[int, Process | None], None] = lambda token, leader: None
        """Called with a range's token and its leader, None for nobody, when either the leader or
        the slices of the range are others; with None also for a range that is none any more."""
        self._show()

    # --- What is told ---------------------------------------------------------------------------

    def learn(self, route: RangeRoute, *, stopped: bool = False) -> bool:
        """What a process of this broker says; true if it is later than what was known."""
        news = self._ranges.heard.learn(route)
        if stopped and self._stopped.get(route.token, 0) < route.epoch:
            self._stopped[route.token] = route.epoch
            news = True
        if news:
            self._show()
        return news

    def learn_all(self, news: Iterable[News]) -> list[News]:
        """Take the news of another worker of this broker; returns what was new."""
        cut, new = self._ranges.cut, []
        for each in news:
            packed, stopped = each
            assert isinstance(packed, bytes), "a sibling has packed it"
            if self.learn(unpack_route(cut, packed), stopped=bool(stopped)):
                new.append(each)
        if self._ranges.heard.look_again():
            self._show()
        return new

    def hear(self, routes: Iterable[RangeRoute], hints: Iterable[RangeRoute] = ()) -> None:
        """What was heard by gossip; hints: what this broker knew when it last ran."""
        changed = self._ranges.heard.hear(routes)
        if self._ranges.heard.recall(hints) or changed:
            self._show()

    def all(self) -> list[News]:
        """All that this broker's processes have said, for another worker."""
        found = self._ranges.heard.at_home()
        return [[each.packed(), self._has_stopped(each)] for each in found]

    # --- Who leads ------------------------------------------------------------------------------

    def leader(self, token: int) -> Process | None:
        """The process that leads the range."""
        piece = self._ranges.at(token)
        return None if piece is None else self._leader(piece)

    def peer(self, token: int) -> int | None:
        """The number in the cluster of the process that leads the range."""
        if token not in self._peers:
            leader = self.leader(token)
            self._peers[token] = None if leader is None else peer_of(leader)
        return self._peers[token]

    def leading(self) -> tuple[int, ...]:
        """The numbers in the cluster of all processes that lead a range, each once."""
        if self._leading is None:
            led = {self.peer(held.token) for held in self._ranges.all}
            self._leading = tuple(sorted(each for each in led if each is not None))
        return self._leading

    def epoch(self, token: int) -> int:
        """Of the latest generation that was heard of; 0: none was."""
        piece = self._ranges.at(token)
        return 0 if piece is None or piece.route is None else piece.route.epoch

    def without(self) -> list[int]:
        """The ranges that nobody is known to lead."""
        return [each.token for each in self._ranges.all if self._leader(each) is None]

    def renumber(self) -> None:
        """A broker has told of other processes: what it leads may be called elsewhere."""
        self._show()

    def _leader(self, piece: RingRange) -> Process | None:
        route = piece.route
        if route is None:
            # One broker has no elections: who leads is known from the start.
            return self._ranges.owner(piece.token) if self._alone else None
        if route.handed or self._has_stopped(route):
            return None
        # What is led at this broker, a process of it says; others say what is over.
        if route.leader == self._me and not self._ranges.heard.is_home(piece.first):
            return None
        return self._ranges.process_at(route.leader, route.token)

    def _has_stopped(self, route: RangeRoute) -> bool:
        return self._stopped.get(route.token, 0) >= route.epoch

    def _show(self) -> None:
        """Routes or processes have changed: tell of each range that is led otherwise now."""
        self._ranges.look()
        self._peers.clear()
        self._leading = None
        now = {each.token: (each.numbers, self._leader(each)) for each in self._ranges.all}
        before, self._shown = self._shown, now
        for token in before.keys() - now.keys():
            self.on_change(token, None)
        for token, shown in now.items():
            if before.get(token) != shown:
                self.on_change(token, shown[1])
