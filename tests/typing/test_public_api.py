"""The library's types, as a program that uses it gets them from the installed package."""

from pathlib import Path

from mypy import api

EXAMPLE = Path(__file__).with_name("public_api.py")


def test_the_example_is_typed(tmp_path: Path) -> None:
    options = ["--strict", "--no-incremental", "--follow-imports=silent", "--config-file="]
    out, errors, status = api.run([*options, f"--cache-dir={tmp_path}", str(EXAMPLE)])
    assert (status, errors) == (0, ""), out
