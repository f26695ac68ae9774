"""What a look has found, as all of them say it."""

from dataclasses import dataclass

GOOD, WARNING, FAULT = "good", "warning", "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: of what, how it is, and, if it is not good, what to do."""

    area: str
    level: str
    words: str

    def plain(self) -> dict[str, str]:
        """For JSON."""
        return {"area": self.area, "level": self.level, "words": self.words}
