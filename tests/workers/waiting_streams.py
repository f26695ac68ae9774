"""What a reactor tells of events that wait, by what it tells of all streams."""

from barco.model.delays import WAITING_PREFIX


class WaitingStreams:
    """A part of the twin."""

    ends: dict[tuple[str, int], int]
    starts: dict[tuple[str, int], int]

    def delayed_news(self) -> list[tuple[str, int, int, int]]:
        told = self.__dict__.setdefault("_told", {})
        news = [each for each in self.delayed_streams() if told.get(each[:2]) != each[3]]
        told.update({each[:2]: each[3] for each in news})
        return news

    def delayed_streams(self) -> list[tuple[str, int, int, int]]:
        return [
            (*name, self.starts.get(name, 0), end)
            for name, end in self.ends.items()
            if name[0].startswith(WAITING_PREFIX)
        ]
