"""The documents: links lead somewhere, the README is short, the API's page names all there is."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from barco import errors
from barco.protocol.versions import SPOKEN
from barco.workers.http.shapes.status import STATUS
from barco.workers.http.table import ROUTES

from . import tree

README_LINES_MAX = 130
NOT_YET = {"unauthorized", "forbidden"}
"""Types of problems that nobody is told: there is no authentication."""

LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PATH = re.compile(
    r"`((?:barco|workers|native|tests|bench|scripts|packaging|docs|pyspark_barco)/[\w./*-]*)`"
)
HISTORY = ("docs/findings.md", "bench/results/", "CHANGELOG.md")
"""They tell of a day, and of what was there on it."""


def pages() -> list[Path]:
    """Every Markdown page of ours."""
    return [path for path in tree.files() if path.suffix == ".md"]


@cache
def anchors(path: Path) -> set[str]:
    """What `#…` may name in a page: its headings, as GitHub and most others make them."""
    text = FENCE.sub("", path.read_text("utf-8"))
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        name, number = words.replace(" ", "-"), 0
        while name in found:
            number += 1
            name = f"{words.replace(' ', '-')}-{number}"
        found.add(name)
    return found


def broken(path: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for target in LINK.findall(FENCE.sub("", path.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.exists() or (anchor and anchor not in anchors(found)):
            wrong.append(f"{tree.relative(path)}: {target}")
    return wrong


def test_links_lead_somewhere() -> None:
    assert len(pages()) > 5
    wrong = [link for path in pages() for link in broken(path)]
    assert not wrong, "\n".join(wrong)


def test_a_broken_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    page = tmp_path / "a.md"
    page.write_text(
        "# One `two`, three\n[a](b.md) [b](#one-two-three) [c](#four) [d](https://x/y)\n"
    )
    assert broken(page) == ["a.md: b.md", "a.md: #four"]


def test_files_that_are_named_are_there() -> None:
    wrong = [
        f"{tree.relative(page)}: {name}"
        for page in pages()
        if not tree.relative(page).startswith(HISTORY)
        for name in PATH.findall(page.read_text("utf-8"))
        if not list(tree.ROOT.glob(name.rstrip("/")))
    ]
    assert not wrong, "named, and not there:\n" + "\n".join(wrong)


def test_metrics_that_are_named_are_told() -> None:
    rooms = ("process/metrics.py", "http/handlers/measures.py")
    sources = [*(tree.ROOT / "workers" / room for room in rooms), *tree.native()]
    told = {
        name
        for path in sources
        for name in re.findall(r'"([a-z][a-z0-9_]+)"', path.read_text("utf-8"))
    }
    wrong = [
        f"{tree.relative(page)}: barco_{name}"
        for page in pages()
        for name in re.findall(r"`barco_([a-z0-9_]+)(?=[`{ ])", page.read_text("utf-8"))
        if name not in told
        and re.sub("_(total|info)$", "", name).removeprefix("gossip_") not in told
    ]
    assert not wrong, "\n".join(wrong)


def test_the_page_of_the_api_names_every_type_of_problem() -> None:
    core = (tree.ROOT / "native" / "broker" / "answer.c").read_text("utf-8")
    types = set(re.findall(r"\{[45]\d\d,\s*\"([a-z-]+)\"", core))
    kinds = (errors.RequestError, errors.BusyError, errors.BrokerError)
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    types |= {each.slug for each in found if issubclass(each, kinds) and each not in kinds}
    assert {"no-leader", "cursor-expired", "disk-full"} <= types
    text = (tree.ROOT / "docs" / "api.md").read_text("utf-8")
    unnamed = [name for name in sorted(types - NOT_YET) if f"`{name}`" not in text]
    assert not unnamed, f"not in docs/api.md: {unnamed}"


def keys_of(path: str, *functions: str) -> set[str]:
    """The texts by which these functions name the entries of dictionaries."""
    found: set[str] = set()
    for function in ast.walk(tree.parsed(tree.ROOT / path)):
        if getattr(function, "name", "") not in functions:
            continue
        for node in ast.walk(function):
            keys: list[ast.expr | None] = []
            if isinstance(node, ast.Dict):
                keys = list(node.keys)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                keys = [node.slice]
            texts = [key.value for key in keys if isinstance(key, ast.Constant)]
            found |= {text for text in texts if isinstance(text, str)}
    return found


def fields_of_the_status() -> set[str]:
    fields = keys_of("workers/http/handlers/status.py", "told", "_peers", "_routes")
    fields |= keys_of("workers/http/handlers/standing.py", "look", "_role")
    fields |= keys_of("workers/process/sealing.py", "status", "status_between")
    fields |= keys_of("workers/replication/figures.py", "status_of", "_blame")
    fields |= keys_of("workers/storage/stores/scrub.py", "status")
    fields |= keys_of("workers/storage/stores/shard_files.py", "health")
    fields |= keys_of("workers/operations/leaving/drains.py", "_report")
    fields |= keys_of("workers/operations/service.py", "_room")
    fields |= set(SPOKEN)
    assert {"inSync", "degraded", "seat", "followers", "groupsBehind", "suspect"} <= fields
    assert {"suspectWhy", "accusedBy", "setAside", "scrubPercent"} <= fields
    return fields


def named_in(schema: dict[str, Any]) -> set[str]:
    """The properties of an object of a JSON Schema, and of all objects in it."""
    below = list(schema.get("properties", {}).values())
    below += [schema["items"]] if "items" in schema else []
    return set(schema.get("properties", {})).union(*map(named_in, below))


def test_openapi_has_every_field_of_the_status_and_no_other() -> None:
    kept = {"address", "state", "connected", "version", "incarnation", "topics"}  # Of a peer.
    assert named_in(STATUS) - kept == fields_of_the_status() - kept


def test_the_page_for_operators_explains_every_field_of_the_status() -> None:
    fields = fields_of_the_status()
    text = (tree.ROOT / "docs" / "operations.md").read_text("utf-8")
    missing = [name for name in sorted(fields) if not re.search(rf"`[^`]*\b{name}\b[^`]*`", text)]
    assert not missing, f"not in docs/operations.md: {missing}"


def test_commands_that_are_named_can_be_given() -> None:
    makefile = (tree.ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    modules = (tree.ROOT / "barco" / "cli" / "commands").glob("[a-z]*")
    commands = {path.stem.replace("_", "-") for path in modules}
    wrong = []
    for page in pages():
        text = page.read_text("utf-8")
        shown = "\n".join(FENCE.findall(text))
        made = set(
            re.findall(r"`make ([a-z-]+)", text) + re.findall(r"(?m)^ *make ([a-z-]+)", shown)
        )
        given = set(re.findall(r"(?:`|/bin/)barco ([a-z][a-z-]*)", text))
        given |= set(re.findall(r"(?m)^barco ([a-z][a-z-]*)", shown))
        made, given = made - targets, given - commands
        wrong += [f"{tree.relative(page)}: {name}" for name in sorted(made | given)]
    assert not wrong, "no such target or command:\n" + "\n".join(wrong)


def test_the_index_has_every_page() -> None:
    index = (tree.ROOT / "docs" / "README.md").read_text("utf-8")
    missing = [
        path.name
        for path in pages()
        if path.parent == tree.ROOT / "docs" and path.name != "README.md"
        if f"({path.name})" not in index
    ]
    assert not missing, f"not in docs/README.md: {missing}"


def test_the_readme_is_read_in_three_minutes() -> None:
    lines = (tree.ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= README_LINES_MAX, "move something to docs/"


def test_the_changelog_is_one_paragraph() -> None:
    """Until there is a version to change from: what changed before it, nobody has."""
    text = (tree.ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "unreleased" not in text or len(text.split("## 0.1.0")[1].strip().split("\n\n")) == 2
    assert "\n- " not in text


def test_the_page_of_the_api_names_every_path_and_every_parameter() -> None:
    """And no path that there is not."""
    text = (tree.ROOT / "docs" / "api.md").read_text("utf-8")
    paths = {route.path for route in ROUTES}
    missing = [path for path in sorted(paths) if path not in text]
    assert not missing, f"not in docs/api.md: {missing}"
    named = {f"/{path}" for path in re.findall(r"(?<=[` ]/)(v1/[^?` |]+)", text)}
    assert named <= paths, named - paths
    parameters = {each.name for route in ROUTES for each in route.parameters}
    unnamed = [name for name in sorted(parameters) if not re.search(rf"\b{name}\b", text)]
    assert not unnamed, f"not in docs/api.md: {unnamed}"
