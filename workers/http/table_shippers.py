"""The part of the table of the API that shippers of logs know: paths of theirs, not ours."""

from dataclasses import replace

from barco.workers.http.base.messages import JSON, NDJSON
from barco.workers.http.base.routes import Parameter, Route, Told
from barco.workers.http.shapes.shippers import COLLECTED, REFUSED
from barco.workers.http.shapes.status import list_of, object_of

_TOLD = Told("Retry-After", "Seconds after which it is worth trying again.", (503,))
_REFUSED = {
    400: "Malformed: nothing is stored.",
    401: "Nobody's token, or none, where one is needed.",
    403: "Not allowed.",
    404: "There is no such topic, and none is made.",
    413: "The body is too large, or has too many events.",
    415: "A content coding that is not taken.",
    500: "It may or may not be stored.",
    503: "Not now; nothing was written.",
}
_ANY = {
    "type": "object",
    "description": "As the protocol has it.",
    "additionalProperties": True,
}

_BULK = Route(
    "POST",
    "/elastic/_bulk",
    "elastic.bulk",
    "Elasticsearch's _bulk: documents are added to the topics that their indices name. 200 when "
    "all that was not refused is durable; of each document it says what became of it.",
    "shippers",
    body={NDJSON: {"type": "string", "description": "A line of index or create, and a document."}},
    answers={200: "Of each document, its status.", **_REFUSED},
    shape="bulk",
    refused=REFUSED,
    lenient=True,
)
_OF_INDEX = replace(
    _BULK,
    path="/elastic/{topic}/_bulk",
    summary="The same, of documents that name no index: this one.",
)

_SAID = tuple(
    Parameter(name, f"Of raw lines: their header {name}.")
    for name in ("host", "source", "sourcetype")
)
_INDEX = Parameter("index", "The topic of events that name none; main if it is not given.")
_CHANNEL = Parameter("channel", "Of acks; or the header X-Splunk-Request-Channel.")

_EVENT = Route(
    "POST",
    "/services/collector/event",
    "splunk.event",
    "Splunk's HTTP event collector: objects one behind the other, each with an event. 200 when all "
    "are durable; of a body with one that is malformed none is stored.",
    "shippers",
    (_INDEX, _CHANNEL),
    body={JSON: _ANY},
    answers={200: "Stored, durably; ackId where a channel is said.", **_REFUSED},
    tells=(_TOLD,),
    shape="collected",
    refused=COLLECTED,
    lenient=True,
)
_RAW = replace(
    _EVENT,
    path="/services/collector/raw",
    handler="splunk.raw",
    summary="Splunk's HTTP event collector: each line is an event as it stands.",
    parameters=(_INDEX, _CHANNEL, *_SAID),
    body={"text/plain": {"type": "string", "description": "One event a line."}},
)
_HEALTH = Route(
    "GET",
    "/services/collector/health",
    "splunk.health",
    "Whether the collector takes events.",
    "shippers",
    answers={200: "It does.", 503: "Not yet."},
    shape="collected",
    lenient=True,
)
_INFO = Route(
    "GET",
    "/elastic",
    "elastic.info",
    "What Elasticsearch's clients ask for first.",
    "shippers",
    answers={200: "A name and a version."},
    shape="elastic",
    lenient=True,
)

SHIPPER_ROUTES = (
    _INFO,
    replace(_INFO, path="/elastic/"),
    replace(
        _INFO,
        path="/elastic/_cluster/health",
        handler="elastic.health",
        summary="What Elasticsearch's clients ask for to see whether it is there.",
    ),
    *(replace(each, method=method) for each in (_BULK, _OF_INDEX) for method in ("POST", "PUT")),
    replace(_EVENT, path="/services/collector"),
    _EVENT,
    replace(_EVENT, path="/services/collector/event/1.0"),
    _RAW,
    replace(_RAW, path="/services/collector/raw/1.0"),
    Route(
        "POST",
        "/services/collector/ack",
        "splunk.ack",
        "Whether what was answered with these ids is durable: it always is.",
        "shippers",
        (_CHANNEL,),
        body={JSON: object_of("acks", acks=list_of({"type": "integer"}))},
        answers={200: "By id, true.", 400: "No channel, or no ids."},
        shape="acks",
        refused=COLLECTED,
        lenient=True,
    ),
    Route(
        "POST",
        "/v1/logs",
        "otlp.logs",
        "OpenTelemetry's logs: each record is an event, as the JSON of its protocol. 200 when all "
        "that were not rejected are durable.",
        "shippers",
        (Parameter("topic", "Where they are stored; otel-logs if it is not given."),),
        body={
            "application/x-protobuf": {
                "type": "string",
                "format": "binary",
                "description": "An ExportLogsServiceRequest.",
            },
            JSON: {**_ANY, "description": "The same as JSON."},
        },
        answers={200: "How many records were rejected, and why.", **_REFUSED},
        tells=(_TOLD,),
        kinds=(JSON, "application/x-protobuf"),
        shape="logs",
    ),
    Route(
        "POST",
        "/loki/api/v1/push",
        "grafana.push",
        "What is pushed to Loki: each line is an event, its stream's labels are the key. All are "
        "stored or, of a body that is malformed, none.",
        "shippers",
        (Parameter("topic", "Where they are stored; loki if it is not given."),),
        body={
            "application/x-protobuf": {
                "type": "string",
                "format": "binary",
                "description": "A PushRequest in Snappy's block format.",
            },
            JSON: {**_ANY, "description": "An object with streams, as Loki takes them."},
        },
        answers={204: "Stored, durably.", **_REFUSED},
        tells=(_TOLD,),
    ),
    Route(
        "POST",
        "/api/v1/write",
        "grafana.write",
        "Prometheus' remote write 1.0: each sample is an event, its series' labels are the key.",
        "shippers",
        (Parameter("topic", "Where they are stored; metrics if it is not given."),),
        body={
            "application/x-protobuf": {
                "type": "string",
                "format": "binary",
                "description": "A WriteRequest in Snappy's block format.",
            }
        },
        answers={204: "Stored, durably.", **_REFUSED},
        tells=(_TOLD,),
    ),
    _HEALTH,
    replace(_HEALTH, path="/services/collector/health/1.0"),
)
"""Part of ROUTES. Parameters that are not known are passed over there: they are other programs'."""
