"""Reading requests, choosing media types, writing responses."""

import pytest

from barco.errors import (
    MethodNotAllowedError,
    NotAcceptableError,
    NotFoundError,
    OutcomeUnknownError,
    RequestError,
)
from barco.workers.http.base import messages
from barco.workers.http.base.messages import (
    KEPT,
    KEPT_CHARACTERS_MAX,
    Request,
    Response,
    Soon,
    choose,
    parse_number,
    parse_query,
    percent_decode,
)
from barco.workers.http.base.render import CONSUME_FORMATS
from barco.workers.http.base.routes import FOUND_CHARACTERS_MAX, Router
from barco.workers.http.table import ROUTES


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json", "application/json"),
        ("Application/JSON ; charset=utf-8", "application/json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("application/json;q=0.5, application/x-ndjson", "application/x-ndjson"),
        ("*/*;q=0.1, application/vnd.barco.chunks", "application/vnd.barco.chunks"),
        ("application/json;q=0, */*", "application/x-ndjson"),
        ("text/html, application/vnd.polar.consumermessage", CONSUME_FORMATS[2]),
    ],
)
def test_choose(accept: str | None, chosen: str) -> None:
    assert choose(accept, CONSUME_FORMATS) == chosen


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "json", "/", "*", ",;,"])
def test_choose_nothing(accept: str) -> None:
    with pytest.raises(NotAcceptableError):
        choose(accept, CONSUME_FORMATS)


def test_query() -> None:
    assert parse_query("a=1&b=x%20y+z&a=2&&=v&c") == {"a": ["1", "2"], "b": ["x y z"], "c": [""]}
    assert parse_query("") == {}
    long = "a=" + "1" * KEPT_CHARACTERS_MAX  # It is not remembered, and read in the same way.
    assert parse_query(long) == {"a": ["1" * KEPT_CHARACTERS_MAX]}


def test_what_is_remembered_is_bounded() -> None:
    """A client that says something else each time leaves no more behind than others."""
    for number in range(3 * KEPT):
        assert parse_query(f"a={number}") == {"a": [str(number)]}
        assert choose(f"*/*, text/{number}", CONSUME_FORMATS) == CONSUME_FORMATS[0]
    parse_query("b=" + "2" * KEPT_CHARACTERS_MAX)
    assert messages._kept_query.cache_info().currsize == KEPT
    assert messages._kept_choice.cache_info().currsize == KEPT
    assert messages._kept_query.cache_info().misses >= 3 * KEPT


def test_a_route_is_found_again_and_nothing_else() -> None:
    router = Router(ROUTES)
    for topic in ("a", "b%20c", "d" * FOUND_CHARACTERS_MAX):
        for _ in range(2):
            route, variables, allowed = router.find("GET", f"/v1/topics/{topic}")
            assert route is not None and route.handler == "topics.get"
            assert variables == {"topic": topic.replace("%20", " ")} and "PUT" in allowed
        with pytest.raises(MethodNotAllowedError):
            router.find("POST", f"/v1/topics/{topic}")
    with pytest.raises(NotFoundError):
        router.find("GET", "/v1/topics/a/b/c")


@pytest.mark.parametrize("raw", ["%", "%4", "%zz", "%ff", "%c0%af", "%ed%a0%80"])
def test_bad_escapes(raw: str) -> None:
    with pytest.raises(RequestError):
        percent_decode(raw, plus_is_space=True)


@pytest.mark.parametrize("value", ["", "-1", "+1", "1_0", "0x1", "١", "1" * 20, str(2**63), "1 "])
def test_bad_numbers(value: str) -> None:
    with pytest.raises(RequestError):
        parse_number("n", value)


def test_good_numbers() -> None:
    assert parse_number("n", "007") == 7
    assert parse_number("n", str(2**63 - 1)) == 2**63 - 1


def test_headers_of_a_name_are_joined() -> None:
    request = Request("GET", "/", {}, [(b"Accept", b"a"), (b"ACCEPT", b"b")], b"")
    assert request.header("accept") == "a, b"
    assert request.header("x") is None


def test_a_header_with_a_line_end_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Response(200, b"", (("X", "a\r\nY: b"),)).head()


@pytest.mark.parametrize("failed", [None, 0, 1, 2])
def test_an_answer_that_comes_soon_waits_for_all_and_is_good_if_all_are(failed: int | None) -> None:
    soon, told = Soon(Response(204)), list[bool]()
    soon.left = 3
    soon.then(lambda: told.append(soon.good))
    for number in range(3):
        assert told == []
        soon.ended(OutcomeUnknownError("lost") if number == failed else None)
    assert told == [failed is None]
