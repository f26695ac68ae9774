"""One word, one meaning (docs/glossary.md)."""

import ast
import re
from collections import Counter, defaultdict

import pytest

from . import native, tree

SHARED = {
    # The same thing, seen from two sides.
    "Ack": "a client's, of an event; gossip's, of a probe: what each protocol calls it",
    "Hello": "each of the two protocols between brokers begins with one",
    "Nack": "each of the two protocols has one",
    "Ping": "each of the two protocols has one",
    "Send": "the effect of both machines: a message for another broker",
    "Request": "of HTTP: as a client makes it, as a worker reads it",
    "Response": "of HTTP: as a worker makes it, as a client reads it",
    "Member": "a consumer: as the control plane registers it, as a worker is told of it",
    # Two things, to be told apart when their modules are next taken up.
    "Brokers": "Spark has an HTTP client of its own",
    "Link": "Spark's connection; a replica's to a peer",
    "Router": "Spark's rows to slices; requests to handlers",
    "Generation": "the value of the protocol; what lineage.log knows of one",
    "Identity": "who has a vote; broker.json",
    "Lineage": "the part of a replica that decides; the journal on disk",
    "Read": "the handlers of reads; what a scan wishes to read",
    "Standing": "questions to a replica; one look at the broker",
}
"""Classes that are defined twice in the product, and why."""

WHERE_IN_A_STREAM = {
    "barco/cli/shared/talk.py",
    "barco/cli/commands/consume.py",
    "barco/client/admin.py",
    "barco/client/consuming/paused.py",
    "barco/client/reader.py",
    "barco/spark/base/fetch.py",
    "barco/spark/read/group.py",
    "barco/spark/base/options.py",
    "barco/spark/read/plan.py",
    "barco/spark/read/reader.py",
    "barco/spark/read/stream.py",
    "workers/http/handlers/groups.py",
    "workers/operations/groups.py",
    "workers/http/handlers/listen.py",
    "workers/http/handlers/read.py",
    "workers/http/listening/feeds.py",
    "workers/http/listening/places.py",
}
"""Modules whose names say `place` as the glossary has it."""

OTHER_PLACES_MAX = 32
"""Names elsewhere that still say it for a seat, a slice, a connection's room: only fewer."""

POINTS_AT_ITS_NEIGHBOUR = re.compile(
    r"(?:\"\"\"|/\* )(?:The same|Likewise|Ditto|As above)"
    r"(?:[.,;:]| (?:as|at|but|by|for|from|in|of|on|unless|where|with)\b)"
)


def classes() -> dict[str, list[str]]:
    """Where each public class of the product is defined."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in tree.modules().values():
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(tree.relative(path))
    return found


def test_a_class_has_its_name_for_itself() -> None:
    twice = {name: where for name, where in classes().items() if len(where) > 1}
    new = [f"{name}: {', '.join(where)}" for name, where in twice.items() if name not in SHARED]
    assert not new, "name one of them otherwise:\n" + "\n".join(new)
    assert not set(SHARED) - set(twice), "defined once by now: take it out of SHARED"


def names_of_places() -> Counter[str]:
    """By module: names that are made there and have `place` or `places` in them."""
    found: Counter[str] = Counter()
    for path in tree.modules().values():
        for node in ast.walk(tree.parsed(path)):
            if words(made(node)) & {"place", "places"}:
                found[tree.relative(path)] += 1
    return found


def made(node: ast.AST) -> str:
    """The name that a node gives to something, or none."""
    if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Store):
        return ""
    for field in ("id", "attr", "arg", "name"):
        if isinstance(name := getattr(node, field, None), str):
            return name if not isinstance(node, (ast.alias, ast.keyword)) else ""
    return ""


def words(name: str) -> set[str]:
    """first_place → first, place"""
    return set(name.lower().strip("_").split("_"))


def test_a_place_is_where_in_a_stream() -> None:
    found = names_of_places()
    elsewhere = {name: n for name, n in found.items() if name not in WHERE_IN_A_STREAM}
    assert sum(elsewhere.values()) <= OTHER_PLACES_MAX, f"a seat, a number, a stream? {elsewhere}"
    assert found.keys() >= WHERE_IN_A_STREAM, WHERE_IN_A_STREAM - found.keys()


def test_the_core_calls_no_slice_a_place() -> None:
    """It has numbers (in the ring) and slices (in a range); log_place() is room in memory."""
    wrong = {
        (name, word)
        for name, text in native.sources().items()
        if name.startswith(("core/", "admission/", "broker/"))
        for word in re.findall(r"\w+", native.plain(text))
        if {"place", "places"} & words(word) and word != "log_place"
    }
    assert not wrong, wrong


def test_docstrings_say_what_they_mean() -> None:
    wrong = [
        f"{tree.relative(path)}:{number}: {line.strip()}"
        for path in (*tree.modules().values(), *tree.native())
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if POINTS_AT_ITS_NEIGHBOUR.search(line)
    ]
    assert not wrong, "what is it? The neighbour may move:\n" + "\n".join(wrong)


def test_the_glossary_explains_each_word_once() -> None:
    text = (tree.ROOT / "docs" / "glossary.md").read_text("utf-8")
    told = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    named = [word for cell in told for word in cell.split(", ") if word not in ("word", "---")]
    assert len(named) > 50
    assert [word for word, n in Counter(named).items() if n > 1] == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('"""The same, and waits."""', True),
        ("/* The same of chunks in memory. */", True),
        ('"""The same group offset, as of now."""', False),
        ('"""Waits for the same, too."""', False),
    ],
)
def test_what_points_at_its_neighbour_is_found(line: str, found: bool) -> None:
    assert bool(POINTS_AT_ITS_NEIGHBOUR.search(line)) is found


def test_names_are_found() -> None:
    tree_ = ast.parse("def f(first_place): self.places = place_of(x.place)")
    assert sorted(filter(None, map(made, ast.walk(tree_)))) == ["f", "first_place", "places"]
    assert words("_first_place") == {"first", "place"}
