"""Which requests are traced, and how much is kept of them."""

import pytest

from barco.workers.tracing import traces
from barco.workers.tracing.traces import SERVER, Span, Traces, sampled_in

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
IDS = (bytes.fromhex(TRACE), bytes.fromhex(PARENT))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (f"00-{TRACE}-{PARENT}-01", IDS),
        (f"00-{TRACE}-{PARENT}-03", IDS),
        (f"cc-{TRACE}-{PARENT}-01-more", IDS),
        (f"00-{TRACE}-{PARENT}-00", False),
        (f"00-{TRACE}-{PARENT}-02", False),
        (f"00-{TRACE}-{PARENT}-01-more", True),
        (f"ff-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE.upper()}-{PARENT}-01", True),
        (f"00-{'0' * 32}-{PARENT}-01", True),
        (f"00-{TRACE}-{'0' * 16}-01", True),
        (f"cc-{TRACE}-{PARENT}-01-{'x' * 200}", True),
        ("", True),
        ("\xff", True),
    ],
)
def test_what_a_traceparent_says(value: str, found: object) -> None:
    field = (b"TraceParent", value.encode("latin-1"))
    assert sampled_in([(b"Host", b"h"), field]) == found
    assert sampled_in([field, field]) is True


def test_what_says_nothing_is_drawn() -> None:
    assert Traces(0).begin([]) is None
    drawn = [Traces(1).begin([]) for _ in range(20)]
    assert len({each.trace for each in drawn if each is not None}) == 20
    assert Traces(1).begin([(b"traceparent", f"00-{TRACE}-{PARENT}-00".encode())]) is None
    traced = Traces(0).begin([(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())])
    assert traced is not None and (traced.trace, traced.parent) == IDS


def test_a_method_that_is_none_is_no_text_of_a_client() -> None:
    kept = Traces(1)
    for method in ("GET", "M" * 60_000):
        traced = kept.begin([])
        assert traced is not None
        kept.end(traced, method, "/v1/topics", 405)
    first, second = kept.take(2)
    assert (first.name, first.attributes["http.request.method"]) == ("GET /v1/topics", "GET")
    assert (second.name, second.attributes["http.request.method"]) == ("HTTP /v1/topics", "_OTHER")


def test_what_nobody_takes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "SPANS_MAX", 4)
    kept = Traces(0)
    spans = [Span(*IDS, str(each), SERVER, each, each) for each in range(6)]
    for span in spans:
        kept.add(span)
    assert kept.lost == 2
    taken = kept.take(3)
    assert taken == spans[2:5]
    kept.add(spans[0])
    kept.give_back(taken)  # There is room for two of them: the newest.
    assert kept.lost == 3 and kept.take(10) == [*spans[3:5], spans[5], spans[0]]
    assert kept.take(1) == []
