"""Tokens as requests show them; tests/integration/test_basic.py asks the core the same."""

import base64

import pytest

from barco.model.bearer import BASIC_CHALLENGE, BEARER_CHALLENGE, challenges, shown_in

HEC = "/services/collector/event"
NOTHING = (None, None)


def named(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def shown(path: str, *values: str) -> tuple[str | None, str | None]:
    return shown_in(path, [(b"Authorization", value.encode("latin-1")) for value in values])


@pytest.mark.parametrize(
    ("value", "token", "name"),
    [
        ("Bearer t", "t", None),
        ("bearer t", "t", None),
        (f"Bearer {'t' * 128}", "t" * 128, None),
        (f"Bearer {'t' * 129}", None, None),
        (f"Basic {named('name:t')}", "t", "name"),
        (f"basic {named('name:t:u')}", "t:u", "name"),
        (f"Basic {named(':t')}", "t", ""),
        (f"Basic {named('name:t').rstrip('=')}", "t", "name"),
        (f"Basic {named('n' * 64 + ':' + 't' * 128)}", "t" * 128, "n" * 64),
        (f"Basic {named('n:' + 't' * 129)}", None, None),
        (f"Basic {named('n' * 200 + ':t')}", "t", "n" * 200),
        (f"Basic {named('n' * 220 + ':t')}", None, None),
        (f"Basic {base64.b64encode(bytes((255, 254)) + b':t').decode()}", "t", "\xff\xfe"),
        (f"Basic {named('name')}", None, None),
        (f"Basic {named('name:')}", None, None),
        ("Basic !!!!", None, None),
        ("Basic bjp0\xff", None, None),
        ("Basic bjp0===", None, None),
        ("Basic bjp0dA", "tt", "n"),
        ("Basic bjp0d", None, None),
        ("Basic ", None, None),
        ("Basic", None, None),
        ("Token t", None, None),
    ],
)
def test_what_is_shown_on_each_path(value: str, token: str | None, name: str | None) -> None:
    for path in (HEC, "/v1/topics", "/registry/subjects", "/"):
        assert shown(path, value) == (token, name), path


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Splunk t", "t"),
        (f"Splunk {'t' * 128}", "t" * 128),
        (f"Splunk {'t' * 129}", None),
        ("Splunk ", None),
        ("Splunk", None),
        (f"ApiKey {named('id:t')}", "t"),
        (f"ApiKey {named(':t')}", "t"),
        (f"ApiKey {named('id')}", None),
    ],
)
def test_what_only_a_shipper_says(value: str, token: str | None) -> None:
    assert shown(HEC, value) == (token, None)
    for path in ("/v1/topics", "/services/collectors", "/elasticity", "/v1/logsx", "/"):
        assert shown(path, value) == NOTHING, path


def test_paths_of_shippers() -> None:
    for path in ("/elastic", "/elastic/", "/v1/logs", "/loki/api/v1/push", "/api/v1/write"):
        assert shown(path, "Splunk t") == ("t", None), path


def test_two_are_none() -> None:
    assert shown(HEC, "Bearer t", "Splunk t") == NOTHING
    assert shown(HEC) == NOTHING


def test_who_shows_a_bearers_token_is_not_asked_for_a_name() -> None:
    assert challenges([(b"authorization", b"bearer t")]) == (BEARER_CHALLENGE,)
    for value in (b"Basic eDp5", b"Bearer", b"Splunk t", b""):
        both = (BEARER_CHALLENGE, BASIC_CHALLENGE)
        assert challenges([(b"Authorization", value)]) == both, value
    assert challenges([]) == both
