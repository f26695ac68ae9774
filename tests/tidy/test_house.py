"""The house as a whole: its map, its knobs, its licence, the link to the workers."""

import ast
import os
import re
import tomllib
from collections import Counter

import barco
from barco import config

from . import tree

README = (tree.ROOT / "README.md").read_text("utf-8")
NOT_ON_THE_MAP = tree.NOT_OURS | {".ci", "barco.egg-info"}


def test_the_readme_has_a_map_of_the_house() -> None:
    assert "map of the house" in README.lower()
    rooms = [
        entry.name
        for entry in tree.ROOT.iterdir()
        if entry.is_dir() and entry.name not in NOT_ON_THE_MAP and not entry.name.startswith(".")
    ]
    missing = [room for room in rooms if not re.search(rf"\b{room}/", README)]
    assert not missing, f"not on the README's map: {missing}"


def test_no_function_or_class_that_no_product_reaches() -> None:
    """What only tests call stands in tests/; of errors the table picks some by what they tell."""
    users = ("barco/", "workers/", "pyspark_barco/", "scripts/", "bench/")
    texts = [
        path.read_text("utf-8") for path in tree.python() if tree.relative(path).startswith(users)
    ]
    words = Counter(word for text in texts for word in re.findall(r"\w+", text))
    wrong = [
        f"{tree.relative(path)}: {node.name}"
        for name, path in tree.modules().items()
        for node in tree.parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and words[node.name] == 1
        and name != "barco.errors"
    ]
    assert not wrong, "\n".join(wrong)


def test_every_knob_is_in_tuning_md() -> None:
    text = (tree.ROOT / "tuning.md").read_text("utf-8")
    missing = [key.dotted for key in config.all_keys() if f"`{key.dotted}`" not in text]
    assert not missing, f"without an entry in tuning.md: {missing}"
    sections = "|".join({key.section for key in config.all_keys()})
    named = set(re.findall(rf"`((?:{sections})\.[a-z_]+)`", text))
    unknown = named - {key.dotted for key in config.all_keys()}
    assert not unknown, f"tuning.md explains what is no key: {unknown}"


def test_the_example_configuration_shows_every_key_with_its_default() -> None:
    text = (tree.ROOT / "packaging" / "barco.toml").read_text("utf-8")
    shown = re.sub(r"(?m)^# ?(?=[a-z_]+ = )", "", text)
    document = tomllib.loads(shown)
    for key in config.all_keys():
        value = document[key.section][key.name]
        assert (tuple(value) if isinstance(value, list) else value) == key.default, key.dotted
    assert sum(len(table) for table in document.values()) == len(list(config.all_keys()))


def test_workers_is_a_link() -> None:
    assert os.readlink(tree.ROOT / "barco" / "workers") == "../workers"
    text = (tree.ROOT / "workers" / "__init__.py").read_text("utf-8")
    assert 'assert __name__ == "barco.workers"' in text


def test_one_version() -> None:
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == barco.__version__
    assert f"## {barco.__version__}" in (tree.ROOT / "CHANGELOG.md").read_text("utf-8")


def test_every_dependency_has_a_reason() -> None:
    text = (tree.ROOT / "pyproject.toml").read_text("utf-8")
    block = text[text.index("dependencies = [") :].split("\n]")[0]
    for line in block.splitlines()[1:]:
        assert "#" in line, f"say why: {line.strip()}"


def test_the_licence() -> None:
    text = (tree.ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_scripts_can_be_run() -> None:
    scripts = [*(tree.ROOT / "scripts").glob("*.sh"), tree.ROOT / ".ci" / "run"]
    assert len(scripts) >= 2
    for path in scripts:
        assert os.access(path, os.X_OK), f"{tree.relative(path)} is not executable"
        assert path.read_text("utf-8").startswith("#!/usr/bin/env bash\n")


def test_make_explains_itself() -> None:
    text = (tree.ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    for target in phony.split():
        assert re.search(rf"^{target}:.*## \w", text, re.MULTILINE), f"{target} has no ## line"
