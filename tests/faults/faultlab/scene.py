"""A ring under load that is hurt round after round; how long writes waited; a verdict."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from faultlab.checker import Report
from faultlab.mount import Mount
from faultlab.prober import Gap, Prober
from faultlab.ring import Ring
from faultlab.round import Scene, outage
from faultlab.said import leaders

WHOLE_S = 30.0
"""Check C11: after the end of a fault, until every range has its owner and two live followers."""

POLL_S = 0.25
EASE = 60.0
"""A history is read back five times: clients wait so much longer between requests."""

PACE_S = 0.025
"""Between two probes of a client: nine of them are at work."""


class RingScene(Scene):
    """A ring, its load, and how long nothing could be written."""

    ring: Ring

    def __init__(
        self,
        root: Path,
        seed: int,
        name: str,
        disks: list[Mount] | None = None,
        *,
        start: bool = True,
        ease: float = EASE,
    ) -> None:
        """`start`: whether the ring begins at once; else `begin` is called later. `ease`: how
        much longer than usual clients wait between two requests."""
        self.ring = self.make_ring(root, disks or ())
        super().__init__(root, seed=seed, name=name, ring=self.ring, ease=ease)
        self._prober: Prober | None = None
        self.tried = 0
        self.gaps: list[float] = []
        """For each fault the longest time without an acknowledgement, of the worst range."""
        self.slow: list[str] = []
        """What did not come back in time: violations of C11."""
        self.outcomes: Counter[str] = Counter()
        """What became of damage."""
        if start:
            self.begin()

    def make_ring(self, root: Path, disks: Sequence[Mount]) -> Ring:
        """That is hurt."""
        return Ring(root, disks=disks)

    def make_prober(self) -> Prober:
        """Who measures."""
        return Prober(self.ring, PACE_S)

    @property
    def prober(self) -> Prober:
        """After `begin`."""
        assert self._prober is not None
        return self._prober

    def begin(self) -> None:
        """Starts the ring."""
        self.ring.start()
        self._prober = self.make_prober()

    def inflict(self, what: str, fault: Callable[[], object], *, patient: bool = True) -> Gap:
        """One fault, until all can be written again (patient: until the ring is whole).

        Returns the longest time without writes; from the time that the fault returns, if it
        returns one: before that there was no quorum.
        """
        if self.load is None:
            self.run_load()
            time.sleep(1)
        self.tried += 1
        since = time.monotonic()
        possible = fault()
        self.history.fault(what, since)
        if patient:
            self.become_whole(what)
        elif not self.prober.await_all(time.monotonic() + WHOLE_S):
            self.slow.append(f"{what}: not written everywhere after {WHOLE_S} s")
        if isinstance(possible, float):
            found = self.prober.gaps(possible, time.monotonic(), impossible_before=True)
        else:
            found = self.prober.gaps(since, time.monotonic())
        self.measured(found)
        self.prober.forget()
        worst = max(found)
        self.gaps.append(worst.seconds)
        return worst

    def measured(self, found: Sequence[Gap]) -> None:
        """The longest wait of each that is probed, around one fault."""
        for gap in found:
            outage(self.name, gap.seconds)

    def become_whole(self, what: str) -> None:
        """Until every range is led by its owner, with two followers that are up to date."""
        began = time.monotonic()
        while missing := self.ring.lacking():
            if time.monotonic() > began + WHOLE_S:
                self.slow.append(f"{what}: not whole after {WHOLE_S} s: {missing}")
                return
            time.sleep(POLL_S)
        self.prober.await_all(began + WHOLE_S)

    def judge(self) -> None:
        """Everything is as it was promised."""
        report = self.report()
        assert not report.wrong, str(report)
        assert report.acked > 100

    def report(self) -> Report:
        """Reads everything back from every broker, and checks the whole history."""
        self.become_whole("all")
        self.end_load()
        self.become_whole("all, and no load")
        self.ring.wait_ready()
        for record in leaders(self.ring.log_paths):
            self.history.add(record)
        report = self.verdict()
        for text in self.slow:
            report.add("C11 liveness", text)
        self.total(report, self.tried)
        return report

    def close(self) -> None:
        """Nothing of it runs any more."""
        if self._prober is not None:
            self._prober.stop()
        super().close()
