"""Whether data of one Avro schema can be read with another: schema resolution of Avro's
specification, decided for all data at once. Pure.

Both are as fastavro has parsed them: names are full ones, and stand for what was defined before.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct, field

from barco.workers.schemas import words

WIDER = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""What is written as the one may be read as the others."""


NAMED = frozenset(("record", "error", "enum", "fixed"))


class Type(Struct, eq=False):
    """One type, with those that it has in it."""

    kind: str
    name: str = ""
    """Full, of those that have one."""
    aliases: frozenset[str] = frozenset()
    fields: "list[Field]" = field(default_factory=list)
    inner: "list[Type]" = field(default_factory=list)
    """Of arrays, maps and unions."""
    symbols: tuple[str, ...] = ()
    default: bool = False
    """Whether an enum has one."""
    size: int = 0
    decimal: tuple[int, int] | None = None
    """Precision and scale."""


class Field(Struct, eq=False):
    """Of a record."""

    name: str
    type: Type
    aliases: frozenset[str]
    default: bool


class Types:
    """Makes types of parsed schemas; a name means the same in all of them."""

    def __init__(self) -> None:
        self._named: dict[str, Type] = {}

    def of(self, given: Any) -> Type:
        """The type; what it names must have been here before."""
        if isinstance(given, str):
            return self._named[given] if given in self._named else Type(given)
        if isinstance(given, list):
            return Type("union", inner=[self.of(each) for each in given])
        kind = given["type"]
        if not isinstance(kind, str):
            return self.of(kind)
        if kind in NAMED:
            return self._defined(kind, given)
        if kind in ("array", "map"):
            return Type(kind, inner=[self.of(given["items" if kind == "array" else "values"])])
        if kind in self._named:
            return self._named[kind]
        return Type(kind, decimal=_decimal(given))

    def _defined(self, kind: str, given: Mapping[str, Any]) -> Type:
        name = given["name"]
        space = name.rpartition(".")[0]
        found = Type("record" if kind == "error" else kind, name)
        found.aliases = frozenset(
            each if "." in each or not space else f"{space}.{each}"
            for each in given.get("aliases", ())
        )
        self._named[name] = found
        if kind == "enum":
            found.symbols = tuple(given["symbols"])
            found.default = "default" in given
        elif kind == "fixed":
            found.size, found.decimal = given["size"], _decimal(given)
        else:
            found.fields = [
                Field(
                    each["name"],
                    self.of(each["type"]),
                    frozenset(each.get("aliases", ())),
                    "default" in each,
                )
                for each in given["fields"]
            ]
        return found


def _decimal(given: Mapping[str, Any]) -> tuple[int, int] | None:
    if given.get("logicalType") != "decimal":
        return None
    return given.get("precision", 0), given.get("scale", 0)


def unreadable(reader: Type, writer: Type) -> list[str]:
    """What stands against reading with the one what was written with the other; empty: nothing.

    422: they are too large to be compared.
    """
    return _Comparison().found(reader, writer, "")[: words.MESSAGES_MAX]


class _Comparison:
    def __init__(self) -> None:
        self._left = words.COMPARED_MAX
        self._fine: dict[tuple[Type, Type], None] = {}
        """Pairs that can be read, or that are being looked at: a type may have itself in it. In
        the order in which they came, so that what was concluded from a pair goes with it."""
        self._wrong: dict[tuple[Type, Type], list[str]] = {}

    def found(self, reader: Type, writer: Type, at: str) -> list[str]:
        """As `unreadable`."""
        pair = (reader, writer)
        if pair in self._fine:
            return []
        if pair in self._wrong:
            return self._wrong[pair]
        self._left -= 1
        if self._left < 0:
            raise words.invalid("The schemas are too large to be compared")
        before = len(self._fine)
        self._fine[pair] = None
        wrong = list(islice(self._looked(reader, writer, at), words.MESSAGES_MAX))
        if wrong:
            while len(self._fine) > before:
                self._fine.popitem()
            self._wrong[pair] = wrong
        return wrong

    def _looked(self, reader: Type, writer: Type, at: str) -> Iterator[str]:
        if writer.kind == "union":
            for each in writer.inner:
                yield from self.found(reader, each, at)
        elif reader.kind == "union":
            if all(self.found(each, writer, at) for each in reader.inner):
                yield f"{_at(at)}no branch of the reader's union reads {_shown(writer)}"
        elif reader.kind != writer.kind:
            if reader.kind not in WIDER.get(writer.kind, ()):
                yield f"{_at(at)}{_shown(writer)} is not read as {_shown(reader)}"
        elif reader.name and not _same_name(reader, writer):
            yield f"{_at(at)}{_shown(writer)} is not read as {_shown(reader)}"
        elif reader.decimal and writer.decimal and reader.decimal != writer.decimal:
            yield f"{_at(at)}decimals of another precision or scale"
        elif reader.kind == "fixed" and reader.size != writer.size:
            yield f"{_at(at)}{_shown(reader)} has {reader.size} bytes, and had {writer.size}"
        elif reader.kind == "enum":
            read = frozenset(reader.symbols)
            gone = [each for each in writer.symbols if each not in read]
            if gone and not reader.default:
                yield f"{_at(at)}{_shown(reader)} lacks {', '.join(gone)[:100]}, and has no default"
        elif reader.kind == "record":
            yield from self._fields(reader, writer, at)
        else:
            for one, other in zip(reader.inner, writer.inner, strict=True):
                yield from self.found(one, other, f"{at}/{reader.kind}")

    def _fields(self, reader: Type, writer: Type, at: str) -> Iterator[str]:
        written = {each.name: each.type for each in writer.fields}
        for each in reader.fields:
            below = f"{at}/{each.name}"
            names = (each.name, *sorted(each.aliases))
            there = next((name for name in names if name in written), None)
            if there is not None:
                yield from self.found(each.type, written[there], below)
            elif not each.default:
                yield f"{below}: the reader's field has no default, and was not written"


def _same_name(reader: Type, writer: Type) -> bool:
    """Without their namespaces, or by an alias of the reader's."""
    last = reader.name.rpartition(".")[2]
    return last == writer.name.rpartition(".")[2] or writer.name in reader.aliases


def _at(at: str) -> str:
    return f"{at}: " if at else ""


def _shown(type: Type) -> str:
    return f"{type.kind} {type.name}".strip()
