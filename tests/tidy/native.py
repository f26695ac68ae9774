"""The C core as the house rules see it: what each file includes, and whose functions it uses.

A scanner, not a compiler: a name counts as used where it is called or stands as a value, and
belongs to the one file that defines a function of that name which is not static.
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path

from . import tree

FLOORS = ("base", "format", "http", "loop", "log", "read", "core", "admission", "broker", "python")
"""Folders of native/, from the ground up: each calls and includes itself and those before it."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
_FUNCTION = re.compile(r"^(?!typedef|#|\s)((?:[\w*]+[\s*]+)+)(\w+)\(([^;{}]*)\)\s*\{", re.MULTILINE)
_DECLARATION = re.compile(r"^(?!typedef|#|\s)(?:[\w*]+[\s*]+)+(\w+)\([^;{}]*\);", re.MULTILINE)
_INCLUDE = re.compile(r'^#\s*include "([^"]+)"', re.MULTILINE)
_USED = re.compile(
    r"(?:(?<=[=(,&?:!|{;])|\breturn\b|^)\s*(?<![.\w])(\w+)\b|(?<![\w.])(?<!->)(\w+)\s*\(",
    re.MULTILINE,
)


def plain(text: str) -> str:
    """Without comments and literals, in as many lines."""
    text = _COMMENT.sub(lambda found: "\n" * found.group().count("\n"), text)
    return _TEXT.sub('""', text)


@cache
def sources() -> dict[str, str]:
    """`folder/name` with its ending, of the core and the binding, to its text."""
    root = tree.ROOT / "native"
    paths: list[Path] = [path for floor in FLOORS for path in sorted((root / floor).iterdir())]
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in paths
        if path.suffix in (".c", ".h")
    }


def unit(name: str) -> str:
    """A source and its header are one."""
    return name.rpartition(".")[0]


def functions(text: str) -> tuple[set[str], set[str]]:
    """Names of the functions that a plain text defines: for others, and static ones."""
    found: tuple[set[str], set[str]] = (set(), set())
    for each in _FUNCTION.finditer(text):
        found["static" in each.group(1).split()].add(each.group(2))
    return found


def unreached(files: dict[str, str]) -> list[tuple[str, str]]:
    """(file, function for others) of those that no file names beyond declaring and defining it."""
    texts = {name: plain(text) for name, text in files.items()}
    words = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    declared = Counter(name for text in texts.values() for name in _DECLARATION.findall(text))
    return [
        (name, each)
        for name, text in sorted(texts.items())
        for each in sorted(functions(text)[0])
        if words[each] == 1 + declared[each] and not each.startswith("PyInit_")
    ]


def includes(text: str) -> set[str]:
    """Headers of ours."""
    return set(_INCLUDE.findall(text))


def uses(files: dict[str, str]) -> dict[str, dict[str, set[str]]]:
    """File to file to the names of the functions that it uses of it."""
    texts = {name: plain(text) for name, text in files.items()}
    own = {name: functions(text) for name, text in texts.items()}
    home = {each: name for name, (public, _) in own.items() for each in public}
    found: dict[str, dict[str, set[str]]] = {name: {} for name in files}
    for name, text in texts.items():
        body = "\n".join(line for line in text.split("\n") if line[:1] in " \t}")
        for each in _USED.finditer(body):
            word = each.group(1) or each.group(2)
            there = home.get(word)
            if there is None or there == name or word in own[name][1]:
                continue
            found[name].setdefault(there, set()).add(word)
    return found


def floor(name: str) -> int:
    """The height of a file's folder."""
    return FLOORS.index(name.partition("/")[0])


def upward(files: dict[str, str]) -> set[tuple[str, str]]:
    """(file, function or header that stands above it)."""
    calls = {
        (name, word)
        for name, others in uses(files).items()
        for other, words in others.items()
        if floor(other) > floor(name)
        for word in words
    }
    return calls | {
        (name, header)
        for name, text in files.items()
        for header in includes(text)
        if "/" in header and floor(header) > floor(name)
    }


def units(files: dict[str, str]) -> dict[str, set[str]]:
    """Unit to units: calls and includes together."""
    graph: dict[str, set[str]] = {unit(name): set() for name in files}
    for name, others in uses(files).items():
        graph[unit(name)] |= {unit(other) for other in others} - {unit(name)}
    for name, text in files.items():
        there = {unit(header) for header in includes(text) if header in files}
        graph[unit(name)] |= there - {unit(name)}
    return graph
