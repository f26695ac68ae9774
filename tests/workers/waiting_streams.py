"""What a reactor tells of events that wait, by what it tells of all streams."""

from barco.model.delays import WAITING_PREFIX


class WaitingStreams:
    """A part of the twin."""

    def streams(self, topic: str | None = None, /) -> list[tuple[str, int, int, int, int]]:
        raise NotImplementedError

    def delayed_news(self) -> bool:
        return True

    def delayed_streams(self) -> list[tuple[str, int, int, int]]:
        return [stream[:4] for stream in self.streams() if stream[0].startswith(WAITING_PREFIX)]
