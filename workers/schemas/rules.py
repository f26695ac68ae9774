"""What may follow what in a subject: the levels of compatibility, for all kinds."""

from collections.abc import Callable, Sequence
from typing import Any

from barco.workers.schemas import json_rules, kinds, protobuf_rules, words
from barco.workers.schemas.avro_rules import Types, unreadable
from barco.workers.schemas.records import Draft

Known = tuple[Draft, kinds.Needed]
"""A schema, and what it refers to."""


def compared(level: str, versions: Sequence[int]) -> list[int]:
    """Those of a subject's versions that a new one is compared with, the newest first."""
    if level == words.NONE:
        return []
    newest_first = sorted(versions, reverse=True)
    return newest_first if level.endswith("_TRANSITIVE") else newest_first[:1]


def against(level: str, new: Known, olds: Sequence[tuple[int, Known]]) -> list[str]:
    """Why a schema may not follow these, which are by version; empty: it may. Takes a while."""
    messages: list[str] = []
    sizes = [_size(old) + _size(new) for _, old in olds]
    if sum(sizes) > words.COMPARED_BYTES_MAX:
        raise words.invalid(
            f"{len(olds)} versions are more than can be compared with it: delete old ones, or set a"
            " level that is not transitive"
        )
    for number, old in olds:
        if new[0].kind != old[0].kind:
            return [f"version {number} is {old[0].kind}, and this is {new[0].kind}"]
        reads = _READS[new[0].kind]
        pairs = []
        if not level.startswith(words.FORWARD):
            pairs.append((f"does not read what version {number} wrote", new, old))
        if not level.startswith(words.BACKWARD):
            pairs.append((f"is not read with version {number}", old, new))
        for text, reader, writer in pairs:
            try:
                found = reads(reader, writer)
            except RecursionError:
                raise words.invalid("The schemas are nested too deeply to be compared") from None
            messages += [f"it {text}: {each}" for each in found]
    return messages


def _size(known: Known) -> int:
    draft, needed = known
    return len(draft.text) + sum(len(each.text) for _, each in needed)


def _avro(reader: Known, writer: Known) -> list[str]:
    return unreadable(_types(reader), _types(writer))


def _types(known: Known) -> Any:
    draft, needed = known
    types = Types()
    for at, (_, each) in enumerate(needed):
        types.of(kinds.avro(each.text, needed[:at]))
    return types.of(kinds.avro(draft.text, needed))


def _json(reader: Known, writer: Known) -> list[str]:
    def read(known: Known) -> json_rules.Root:
        return json_rules.Root(
            kinds.parsed(known[0].text), {name: kinds.parsed(d.text) for name, d in known[1]}
        )

    return json_rules.refused(read(reader), read(writer))


def _protobuf(reader: Known, writer: Known) -> list[str]:
    """Descriptors are compared; text in the language itself is not read."""
    one, other = (protobuf_rules.descriptor(each[0].text) for each in (reader, writer))
    return [] if one is None or other is None else protobuf_rules.unreadable(one, other)


_READS: dict[str, Callable[[Known, Known], list[str]]] = {
    words.AVRO: _avro,
    words.JSON: _json,
    words.PROTOBUF: _protobuf,
}
