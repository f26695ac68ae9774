"""What the README shows is what a reader gets."""

import json
import re
from pathlib import Path

from barco import config
from barco.client.wire.codec import token_of
from barco.config import Config
from barco.model.placement import Placement
from barco.types import Token

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_the_configuration_of_a_cluster_is_taken(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "barco.toml"
    file.write_text(block, "utf-8")
    read = config.load(file, {})
    assert read.broker.ordinal == 1 and len(read.cluster.brokers) == 3


def test_the_answer_of_the_first_produce() -> None:
    (line,) = re.findall(r'^{"topic":"weather".*}$', README, re.MULTILINE)
    (key,) = re.findall(r"topic/weather/messages\?partitionKey=(\w+)", README)
    told = json.loads(line)
    ring = Placement(1, Config().cluster.slices_per_range)
    assert ring.locate(Token(token_of(key.encode()))) == (0, told["rangeIndex"])
    assert (told["version"], told["startOffset"], told["count"]) == (2, "0", 1)
