"""The typed names of the options are those of the options, with their types."""

import dataclasses
import typing

import pytest

from barco.client.base.settings import (
    ConsumerSettings,
    ProducerSettings,
    ReaderSettings,
    parted,
)
from barco.client.consuming.enrolment import ConsumerOptions
from barco.client.pipeline import PipelineOptions, PipelineSettings
from barco.client.reader import ReaderOptions
from barco.client.sender import ProducerOptions


@pytest.mark.parametrize(("settings", "options"), [
    (ProducerSettings, ProducerOptions),
    (ConsumerSettings, ConsumerOptions),
    (ReaderSettings, ReaderOptions),
    (PipelineSettings, PipelineOptions),
])  # fmt: skip
def test_every_option_and_no_other(settings: type, options: type) -> None:
    named = typing.get_type_hints(settings)
    assert named.pop("token", str) is str, "of a pipeline it is a parameter of its own"
    assert named == typing.get_type_hints(options)
    assert set(named) == {field.name for field in dataclasses.fields(options)}


def test_the_token_is_no_option() -> None:
    given = ConsumerSettings(token="t", start="latest")
    assert parted(given) == ("t", {"start": "latest"})
    assert given == {"token": "t", "start": "latest"}, "the caller's own is left alone"
    assert parted({}) == ("", {})
