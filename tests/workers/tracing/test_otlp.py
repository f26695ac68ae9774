"""Spans as OpenTelemetry's own messages read them."""

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from barco.workers.tracing.exporter import PRODUCE, spans_of
from barco.workers.tracing.otlp import encode
from barco.workers.tracing.traces import CLIENT, SERVER, Span

TRACE, PARENT = bytes(range(16)), bytes(range(8))


def test_the_fields_are_where_they_belong() -> None:
    attributes: dict[str, str | int] = {"text": "é" * 200, "number": 2**40, "none": 0}
    good = Span(TRACE, PARENT, "a" * 300, SERVER, 1_700_000_000_000_001, 1_700_000_000_000_002)
    bad = Span(TRACE, b"", "b", CLIENT, 1, 2**40, attributes, failed=True)
    body = encode([good, bad], {"service.name": "barco", "n": 7}, "1.2.3")
    read = ExportTraceServiceRequest.FromString(body)
    (resource,) = read.resource_spans
    (scope,) = resource.scope_spans
    assert [(a.key, a.value.string_value or a.value.int_value) for a in resource.resource.attributes
            ] == [("service.name", "barco"), ("n", 7)]  # fmt: skip
    assert (scope.scope.name, scope.scope.version) == ("barco", "1.2.3")
    first, second = scope.spans
    assert (first.trace_id, first.parent_span_id, first.span_id) == (TRACE, PARENT, good.id)
    assert first.name == "a" * 300 and first.kind == first.SPAN_KIND_SERVER
    assert first.start_time_unix_nano == 1_700_000_000_000_001_000
    assert first.end_time_unix_nano == 1_700_000_000_000_002_000
    assert first.status.code == first.status.STATUS_CODE_UNSET and not first.attributes
    assert second.parent_span_id == b"" and second.kind == second.SPAN_KIND_CLIENT
    assert second.status.code == second.status.STATUS_CODE_ERROR
    told = {a.key: a.value for a in second.attributes}
    assert told["text"].string_value == "é" * 200 and told["number"].int_value == 2**40
    assert told["none"].WhichOneof("value") == "int_value"
    assert read.ByteSize() == len(body), "nothing that it does not know"


def spans(*times: int, status: int = 200, handed_as: bytes = b"", over: bool = False) -> list[Span]:
    begun, received, built, written, replicated, handed, ended = times
    told = (TRACE, PARENT, handed_as, over, "order-7", "t", status, 1, begun, received, built)
    return list(spans_of((*told, written, replicated, handed, ended)))


def stages(*times: int, status: int = 200) -> list[tuple[str, int, int]]:
    found, (begun, *_, ended) = spans(*times, status=status), times
    whole, parts = found[0], found[1:]
    assert whole.attributes["barco.request.id"] == "order-7"
    assert (whole.name, whole.begun_us, whole.ended_us) == (PRODUCE, begun, ended)
    assert all(each.parent == whole.id and each.trace == TRACE for each in parts)
    return [(each.name, each.begun_us, each.ended_us) for each in parts]


def test_stages_of_a_produce() -> None:
    receive = ("receive", 1, 2)
    gathered = [receive, ("gather", 2, 3), ("write", 3, 5)]
    assert stages(1, 2, 3, 5, 0, 0, 7) == [*gathered, ("answer", 5, 7)]
    followed = [*gathered, ("replicate", 3, 6), ("answer", 6, 7)]
    assert stages(1, 2, 3, 5, 6, 0, 7) == followed
    assert stages(1, 2, 3, 5, 4, 0, 7)[3:] == [("replicate", 3, 4), ("answer", 5, 7)]
    assert stages(1, 2, 0, 0, 0, 6, 7) == [receive, ("hand-off", 2, 6), ("answer", 6, 7)]
    assert stages(1, 2, 0, 0, 0, 0, 7) == [receive]  # Refused, or a duplicate.
    assert stages(1, 0, 0, 0, 0, 0, 7, status=400) == []
    joined = [receive, ("gather", 2, 2), ("write", 2, 5)]  # A group that was built before.
    assert stages(1, 2, 1, 5, 0, 0, 7) == [*joined, ("answer", 5, 7)]


def test_both_ends_of_a_hand_off() -> None:
    for handed in (6, 0):  # 0: it was given up, and the other end may have told of it.
        whole, _, hand_off, _ = spans(1, 2, 0, 0, 0, handed, 7, handed_as=PARENT)
        assert (hand_off.id, hand_off.parent) == (PARENT, whole.id)
        assert (hand_off.begun_us, hand_off.ended_us) == (2, handed or 7)
    over, *parts = spans(3, 3, 4, 5, 0, 0, 6, over=True)
    assert (over.name, over.parent, over.id != PARENT) == ("handed in", PARENT, True)
    assert [each.name for each in parts] == ["gather", "write", "answer"]
    assert {each.parent for each in parts} == {over.id} and "http.route" not in over.attributes
    assert spans(3, 3, 0, 0, 0, 0, 6, over=True, status=503)[0].failed
