"""Tokens as requests show them; tests/integration/test_shippers.py asks the core the same."""

import base64

import pytest

from barco.model.bearer import token_in

HEC = "/services/collector/event"


def named(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def shown(path: str, *values: str) -> str | None:
    return token_in(path, [(b"Authorization", value.encode()) for value in values])


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Bearer t", "t"),
        ("bearer t", "t"),
        ("Splunk t", "t"),
        (f"Basic {named('name:t')}", "t"),
        (f"Basic {named('name:t:u')}", "t:u"),
        (f"Basic {named('name:t').rstrip('=')}", "t"),
        (f"ApiKey {named(':t')}", "t"),
        (f"Basic {named('n' * 64 + ':' + 't' * 128)}", "t" * 128),
        (f"Basic {named('n:' + 't' * 129)}", None),
        (f"Basic {named('n' * 200 + ':t')}", "t"),
        (f"Basic {named('n' * 220 + ':t')}", None),
        (f"Basic {named('name')}", None),
        (f"Basic {named('name:')}", None),
        ("Basic !!!!", None),
        ("Basic bjp0===", None),
        (f"Splunk {'t' * 128}", "t" * 128),
        (f"Splunk {'t' * 129}", None),
        ("Splunk ", None),
        ("Splunk", None),
        ("Token t", None),
    ],
)
def test_what_a_shipper_says(value: str, token: str | None) -> None:
    assert shown(HEC, value) == token
    elsewhere = token if value.lower().startswith("bearer") else None
    for path in ("/v1/topics", "/services/collectors", "/elasticity", "/v1/logsx", "/"):
        assert shown(path, value) == elsewhere, path


def test_paths_of_shippers() -> None:
    for path in ("/elastic", "/elastic/", "/v1/logs", "/loki/api/v1/push", "/api/v1/write"):
        assert shown(path, "Splunk t") == "t", path


def test_two_are_none() -> None:
    assert shown(HEC, "Bearer t", "Splunk t") is None
    assert shown(HEC) is None
