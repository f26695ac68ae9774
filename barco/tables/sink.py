"""What keeps rows and the places behind them in one step, and how the places are written down."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from barco.errors import OperatorError
from barco.protocol.cursor import Cursor

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a topic is in a table."""

    topic: str
    columns: str = ""
    """As they were asked for: rows of two kinds are no table."""
    cursors: Mapping[str, str] = field(default_factory=dict)
    """By slice, as `token.index`: the next to export. A slice that is not there was not begun."""

    def to_text(self) -> str:
        """As a file's footer and a table's properties have it."""
        return json.dumps(
            {
                "format": FORMAT,
                "topic": self.topic,
                "columns": self.columns,
                "cursors": dict(sorted(self.cursors.items())),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_text(cls, text: str | bytes, where: str) -> "Reached":
        """The inverse; OperatorError names `where` if it is none that this version reads."""
        try:
            told = json.loads(text)
            if told["format"] != FORMAT:
                raise OperatorError(f"{where} was exported by a later version of barco")
            cursors = {str(name): str(Cursor.parse(at)) for name, at in told["cursors"].items()}
            return cls(
                str(told["topic"]),
                str(told["columns"]),
                cursors,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OperatorError(f"{where} does not say how far it is: {error!r}") from error


class Sink(Protocol):
    """A table. One exporter writes it at a time; another one is found out, not merged."""

    def progress(self) -> Reached | None:
        """Those of the last commit; None: nothing was exported to it yet."""

    def kind(self) -> pa.Schema | None:
        """The table's columns, if it has any yet."""

    def commit(self, rows: pa.Table, progress: Reached) -> str:
        """Adds rows and moves the progress, both or neither, and for good; says where they are."""

    def close(self) -> None:
        """Lets another exporter begin."""
