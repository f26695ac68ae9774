"""`make site`: what is staged is whole, mkdocs.yml names all of it, and mkdocs builds it."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from barco import cli
from barco.workers.http.table import ROUTES

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site, hooks = script("site"), script("site_hooks")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("site")
    site.stage(target)
    return target


def named(nav: Any) -> list[str]:
    """The pages of a part of `nav`."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [name for part in parts for name in named(part)]


def test_the_menu_has_each_page_once_and_no_other(pages: Path) -> None:
    listed = named(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    assert len(listed) == len(set(listed))
    there = {str(path.relative_to(pages)) for path in pages.rglob("*.md")}
    days = {name for name in there if re.match(r"bench/results/\d", name)}  # Of that page's list.
    assert set(listed) == there - days
    docs = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert docs < set(listed)


def test_links_of_what_is_staged_lead_somewhere(pages: Path) -> None:
    wrong, found = [], 0
    for page in pages.rglob("*.md"):
        for _, target in site.LINK.findall(site.FENCE.sub("", page.read_text("utf-8"))):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            leads = (page.parent / path).resolve() if path else page
            if not leads.is_file():
                wrong.append(f"{page.relative_to(pages)}: {target}")
            elif anchor:
                found += 1
                heads = re.findall(r"^#+ (.+)$", leads.read_text("utf-8"), re.MULTILINE)
                if anchor not in {hooks.slug(head, "-") for head in heads}:
                    wrong.append(f"{page.relative_to(pages)}: {target}")
    assert found > 20 and not wrong, "\n".join(wrong)


def test_every_command_and_every_path_is_told(pages: Path) -> None:
    commands = (pages / "reference" / "cli.md").read_text("utf-8")
    heads = set(re.findall(r"^## barco (.*)$", commands, re.MULTILINE))
    assert heads == set(cli.COMMANDS)
    assert "### barco queue take\n" in commands and "--max-deliveries N" in commands
    paths = (pages / "reference" / "http.md").read_text("utf-8")
    told = re.findall(r"^### ([A-Z]+ /.*)$", paths, re.MULTILINE)
    assert sorted(told) == sorted(f"{route.method} {route.path}" for route in ROUTES)


@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None,
    reason="needs mkdocs-material: pip install 'barco[site]'",
)
def test_the_site_is_built_and_asks_for_nothing(pages: Path, tmp_path: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    html = tmp_path / "html"
    text = text.replace("build/site/pages", str(pages)).replace("build/site/html", str(html))
    text = text.replace("scripts/site_hooks.py", str(ROOT / "scripts" / "site_hooks.py"))
    file = tmp_path / "mkdocs.yml"
    file.write_text(text, "utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert (html / "index.html").exists() and (html / "docs" / "api.html").exists()
    for page in html.rglob("*.html"):
        asked = re.findall(r"<(?:script|img|iframe)[^>]+src=\"?(\w+:)?//", page.read_text("utf-8"))
        asked += re.findall(r"<link[^>]+stylesheet[^>]+href=\"?(\w+:)?//", page.read_text("utf-8"))
        assert not asked, page
