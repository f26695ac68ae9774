"""The library's types, as a program that uses it gets them from the installed package."""

from pathlib import Path

from reference.typed import complaints

EXAMPLE = Path(__file__).with_name("public_api.py")


def test_the_example_is_typed(tmp_path: Path) -> None:
    said = complaints([EXAMPLE], tmp_path)
    assert not said, said
