"""`--disk ORDINAL=UUID` of `barco recover`."""

import argparse

import pytest

from barco.cli.commands.unclean import disk
from barco.model.generation import Identity

UUID = "0b1f5ef38cbb4f54b3e25ee8e4e9c0a4"


def test_a_disk_is_named_by_its_broker_and_uuid() -> None:
    assert disk(f"1={UUID}") == Identity(1, bytes.fromhex(UUID))


@pytest.mark.parametrize(
    "text",
    ["", UUID, f"={UUID}", f"-1={UUID}", f"65536={UUID}", "1=", f"1={UUID[1:]}", "1=" + "g" * 32],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="ORDINAL=UUID"):
        disk(text)
