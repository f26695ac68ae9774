"""One slice of a queue by brute force: a table with a row for each event, and no cleverness."""

from dataclasses import dataclass

from barco.model.queues import QueueSettings


@dataclass
class Row:
    """An event."""

    state: str = "free"  # free, leased, later, doubtful, dying, done
    count: int = 0
    until: int = 0
    leased: int = 0
    """With which count."""


class Model:
    """What `Window` has to do, one event after the other."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.rows: list[Row] = []

    def grow(self, end: int) -> None:
        while len(self.rows) < end:
            self.rows.append(Row())

    def out(self) -> int:
        return sum(row.state == "leased" for row in self.rows)

    def may_take(self, keys: list[int | None] | None = None) -> list[int]:
        """All that could be given now."""
        found: list[int] = []
        busy: set[int] = set()
        for at, row in enumerate(self.rows):
            key = keys[at] if keys is not None else None
            if row.state == "done":
                continue
            if row.state == "free" and (key is None or key not in busy):
                found.append(at)
            if key is not None:
                busy.add(key)
        return found

    def lease(self, at: int, until: int, count: int) -> None:
        row = self.rows[at]
        assert row.state == "free" and count == row.count + 1, (at, row, count)
        row.state, row.until, row.leased = "leased", until, count

    def back(self, at: int, count: int, now: int, delay: int) -> None:
        row = self.rows[at]
        row.count = max(count, row.count)
        if 0 < self.settings.deliveries <= count:
            row.state = "dying"
        elif delay:
            row.state, row.until = "later", now + delay
        else:
            row.state = "free"

    def due(self, now: int) -> None:
        for at, row in enumerate(self.rows):
            if row.state == "leased" and row.until <= now:
                self.back(at, row.leased, now, self.settings.pause_ms(row.leased))
        for row in self.rows:
            if row.state in ("later", "doubtful") and row.until <= now:
                last = 0 < self.settings.deliveries <= row.count
                row.state = "dying" if last else "free"

    def done(self) -> set[int]:
        return {at for at, row in enumerate(self.rows) if row.state == "done"}
