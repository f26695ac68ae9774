#!/usr/bin/env python3
"""`make site`: the documents, the HTTP API and every command's help as a site, in build/site/html.

    scripts/site.py           stage the pages, build the site; a broken link is an error
    scripts/site.py --stage   stage only: build/site/pages, plain Markdown

The pages are those of the repository where they are, and two that are made: of the table of routes,
as /openapi.json tells it, and of each command's --help. Nothing is fetched, and the site asks for
nothing from anywhere else.
"""

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import barco
from barco import cli
from barco.workers.http.base.openapi import document
from barco.workers.http.table import ROUTES

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "site"
RESULTS = Path("bench/results")
IMAGES = Path("docs/images")
SOURCES = ("*.md", "docs/*.md", "docs/library/*.md", "bench/*.md", "bench/results/*.md")
SERVED = """\
What [`/openapi.json`](openapi.json) says, which each broker serves. How these work together:
[the HTTP API](../docs/api.md)."""
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```\n?)", re.DOTALL | re.MULTILINE)


def main() -> int:
    """Stage, and build."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stage", action="store_true", help="build/site/pages only")
    args = parser.parse_args()
    stage(BUILD / "pages")
    if args.stage:
        return 0
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode == 0:
        print(f"site: {BUILD / 'html' / 'index.html'}; to search it as well:")
        print("      .venv/bin/python -m http.server -b 127.0.0.1 8000 -d build/site/html")
    return done.returncode


def stage(pages: Path) -> None:
    """All pages in one directory, each where its links expect it."""
    shutil.rmtree(pages, ignore_errors=True)
    sources = sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))
    names = {path.relative_to(ROOT) for path in sources}
    for name in sorted(names):
        _write(pages / name, _linked((ROOT / name).read_text("utf-8"), name, names))
    shutil.copytree(ROOT / IMAGES, pages / IMAGES)
    _write(pages / RESULTS / "README.md", _results(names))
    _write(pages / "reference" / "http.md", http_page())
    _write(pages / "reference" / "cli.md", cli_page())
    told = json.dumps(document(ROUTES, barco.__version__), indent=1, ensure_ascii=False)
    _write(pages / "reference" / "openapi.json", told + "\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _linked(text: str, page: Path, names: set[Path]) -> str:
    """The page with links that lead somewhere in the site; to other files only their name is
    left."""

    def link(match: re.Match[str]) -> str:
        words, target = match.groups()
        if target.startswith("#") or re.match(r"[a-z]+:", target):
            return match[0]
        path, _, _ = target.partition("#")
        found = (ROOT / page.parent / path).resolve().relative_to(ROOT)
        if found in names:
            return match[0]
        if found == RESULTS:
            return f"[{words}]({target}README.md)"
        return words if words.startswith("`") else f"{words} (`{found}`)"

    parts = FENCE.split(text)
    return "".join(each if each.startswith("```") else LINK.sub(link, each) for each in parts)


def _results(names: set[Path]) -> str:
    listed = sorted(name.name for name in names if name.parent == RESULTS)
    return "# Results\n\n" + "".join(f"- [{name[:-3]}]({name})\n" for name in reversed(listed))


# --- Every command ------------------------------------------------------------------------------


def cli_page() -> str:
    """What each command says with --help, and each of its actions."""
    parts = ["# Every command", "What `barco COMMAND --help` says.", _fenced(help_of())]
    for command in cli.COMMANDS:
        text = help_of(command)
        parts += [f"## barco {command}", _fenced(text)]
        for action in actions_in(text):
            parts += [f"### barco {command} {action}", _fenced(help_of(command, action))]
    return "\n\n".join(parts) + "\n"


def help_of(*words: str) -> str:
    """The help, in 96 columns, without colours."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = cli.main([*words, "--help"])
    assert code == 0, words
    return out.getvalue().strip()


def actions_in(text: str) -> list[str]:
    """The names in the section `actions:` of a help text."""
    section = re.search(r"^actions:\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return re.findall(r"^    ([a-z][a-z-]*)\b", section[1], re.MULTILINE) if section else []


def _fenced(text: str) -> str:
    assert "```" not in text
    return f"```text\n{text}\n```"


# --- Every path ---------------------------------------------------------------------------------


def http_page() -> str:
    """The API as /openapi.json tells it."""
    told = document(ROUTES, barco.__version__)
    parts = [
        "# Every path",
        SERVED,
    ]
    for tag in told["tags"]:
        parts += [f"## {tag['name'].capitalize()}", tag["description"]]
        for path, operations in told["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    parts += _operation(f"{method.upper()} {path}", operation)
    parts.append("## Shapes")
    for name, schema in told["components"]["schemas"].items():
        parts += [f"### {name}", schema.get("description", ""), *_fields(schema)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _operation(title: str, operation: dict[str, Any]) -> list[str]:
    parts = [f"### {title}", operation["summary"]]
    # What all of them have is told once, in api.md: here it is only referred to.
    parameters = [each for each in operation["parameters"] if "$ref" not in each]
    rows = [
        (
            f"`{each['name']}`",
            each["in"],
            "yes" if each["required"] else "",
            each["description"],
        )
        for each in parameters
    ]
    parts += _table(("parameter", "in", "needed", ""), rows)
    bodies = operation.get("requestBody", {}).get("content", {})
    for kind, schema in bodies.items():
        parts += [f"Body `{kind}`: {_type(schema['schema'])}", *_fields(schema["schema"])]
    rows = []
    for status, answer in operation["responses"].items():
        contents = answer.get("content", {}).items()
        kinds = ", ".join(f"`{kind}` {_named(each['schema'])}".strip() for kind, each in contents)
        rows.append((status, answer.get("description", "A problem document."), kinds))
    parts += _table(("status", "", "body"), rows)
    heads = [
        (f"`{name}`", status, header["description"])
        for status, answer in operation["responses"].items()
        for name, header in answer.get("headers", {}).items()
        if "$ref" not in header
    ]
    return parts + _table(("header", "of", ""), heads)


def _fields(schema: dict[str, Any]) -> list[str]:
    """The fields of an object, or of what a list has, as a table; those of objects in it too."""
    rows: list[tuple[str, ...]] = []

    def add(prefix: str, each: dict[str, Any]) -> None:
        for name, field in each.get("properties", {}).items():
            needed = "yes" if name in each.get("required", ()) else ""
            rows.append((f"`{prefix}{name}`", _type(field), needed, field.get("description", "")))
            below = field.get("items", field)
            add(f"{prefix}{name}{'[]' if 'items' in field else ''}.", below)

    top = schema.get("items", schema)
    add("[]." if top is not schema else "", top)
    return _table(("field", "type", "always", ""), rows)


def _named(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f"[{name}](#{name.lower()})" if name else ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _named(schema)
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(map(_type, schema["oneOf"]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(more := schema.get("additionalProperties"), dict):
        return f"object of {_type(more)}"
    return str(kind)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [" | ".join(row) for row in (head, ["---"] * len(head), *cells)]
    return ["\n".join(f"| {line} |" for line in lines)]


if __name__ == "__main__":
    sys.exit(main())
