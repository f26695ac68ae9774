"""docs/spark.md names every option that there is, where it speaks of reads or of writes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from barco.spark.base.options import OptionError, ReadOptions
from barco.spark.write.commit import WriteOptions

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text("utf-8")


def known(parse: Callable[[dict[str, str]], object], given: dict[str, str]) -> set[str]:
    """What the message of an option that does not exist says there is."""
    with pytest.raises(OptionError, match="there is no option 'zzz'; there are: ") as caught:
        parse(given | {"zzz": "1"})
    return set(str(caught.value).partition("there are: ")[2].split(", "))


@pytest.mark.parametrize("heading", ["Reading", "Writing"])
def test_every_option_is_named(heading: str) -> None:
    if heading == "Reading":
        names = known(lambda given: ReadOptions.parse(given, stream=True), {"subscribe": "t"})
    else:
        names = known(WriteOptions.parse, {"topic": "t"})
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([A-Za-z0-9.]+)`|option\(\"(\w+)\"", part))
    words = {word for pair in named for word in pair if word}
    missing = {name for name in names if name not in words} - {"path", "checkpointLocation"}
    assert not missing, f"{heading}: {sorted(missing)}"
