"""The exception tree: five branches, stable names, sensible statuses."""

import re

import pytest

from barco import errors
from barco.errors import BarcoError

BRANCHES = (
    errors.RequestError,
    errors.BusyError,
    errors.BrokerError,
    errors.PeerError,
    errors.OperatorError,
)


def tree(kind: type[BarcoError] = BarcoError) -> list[type[BarcoError]]:
    return [kind] + [deeper for child in kind.__subclasses__() for deeper in tree(child)]


ALL = [kind for kind in tree() if kind.__module__ == "barco.errors"]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_says_whose_fault_it_is(kind: type[BarcoError]) -> None:
    if kind is not BarcoError:
        assert sum(issubclass(kind, branch) for branch in BRANCHES) == 1
    assert kind.__doc__ and kind.title
    assert re.fullmatch(r"[a-z][a-z-]*", kind.slug)
    assert 400 <= kind.status <= 599


def test_names_are_unique() -> None:
    slugs = [kind.slug for kind in ALL]
    # BrokerError has no name of its own: it is the plain internal error.
    assert sorted(set(slugs)) == sorted(kind.slug for kind in ALL if kind is not errors.BrokerError)


def test_the_client_is_at_fault_below_500_and_only_there() -> None:
    for kind in ALL:
        if issubclass(kind, errors.RequestError):
            assert kind.status < 500 and not kind.retryable
        elif not issubclass(kind, errors.BusyError):
            assert kind.status >= 500


def test_what_is_busy_was_not_written_and_may_be_tried_again() -> None:
    for kind in ALL:
        if issubclass(kind, errors.BusyError):
            assert kind.status in (429, 503) and kind.retryable and kind.written is False
    assert errors.OutcomeUnknownError.written is None


def test_problem_document() -> None:
    error = errors.TooLargeError("The body has 20 bytes.", limit=10)
    assert error.problem() == {
        "type": "urn:barco:problem:too-large",
        "title": "Content too large",
        "status": 413,
        "detail": "The body has 20 bytes.",
        "limit": 10,
    }
    assert str(error) == error.detail


def test_without_a_detail_the_title_stands_in() -> None:
    assert errors.NotReadyError().detail == "Not ready"


def test_exit_codes() -> None:
    assert errors.ConfigError.exit_code == errors.DataDirError.exit_code == 78
    assert errors.InUseError.exit_code == errors.CrashLoopError.exit_code == 1
