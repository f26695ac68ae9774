"""The table of the API, of reading and hearing events without a group."""

from barco.workers.http.base.messages import EVENT_STREAM
from barco.workers.http.base.render import COLUMNS, CONSUME_FORMATS
from barco.workers.http.base.routes import Parameter, Route, Told

MAX_BYTES = Parameter(
    "maxBytes",
    "How much to return at most: 1 MiB if not given, 16 MiB at most. One event is always returned.",
    "integer",
)
WAIT = Parameter(
    "waitMs", "Hold the request until there are events, for at most so long (60,000).", "integer"
)

RETRY_AFTER = "Seconds after which it is worth trying again."

MISSING_TOPICS = Told(
    "Barco-Missing-Topics",
    "Those that are not there yet, by commas: they come with their first event, or are misspelt.",
    (200,),
)
START = Told(
    "Barco-Start",
    "With stored chunks: topic/slice@offset of slices whose first chunk begins before the events "
    "that are meant.",
    (200,),
)

_LAST_ID = Parameter(
    "Last-Event-ID",
    "Of a stream: the id of the last event that came. What follows it is sent; it counts before "
    "`from`.",
    header=True,
)

_EVENTS = Route(
    "GET",
    "/v1/topic/{topic}/slices/{token}/{index}/events",
    "listen.slice",
    "Events of one slice from a place on. Barco-Next-Cursor says where to go on. As "
    "text/event-stream (where Accept has it): as they come, until the client hangs up.",
    "read",
    (
        Parameter(
            "from",
            "A cursor, earliest (else), latest (a stream: else), timestamp:<µs> or a time "
            "(2026-01-31T12:00:00Z).",
        ),
        Parameter("to", "Where to stop, in the same words; else at the end."),
        MAX_BYTES,
        WAIT,
        _LAST_ID,
        Parameter(
            "Barco-Reader",
            "Who reads, for people who look at /v1/jobs: a name and, behind a blank, the number of "
            "a batch if there are such.",
            header=True,
        ),
        Parameter(
            "where",
            "Of application/x-ndjson: only events of which this is true, of all where it is given "
            "again (8 at most). key, value, header.NAME or a place in JSON ($.a.b[0], $['a b']), "
            "then = != ~ < <= > >= and a text, a number or a text in quotes; or nothing: it is "
            "there. An answer looks at as much as maxBytes would hold, so it may have no line; "
            "Barco-Next-Cursor says where to go on.",
            repeated=True,
        ),
        Parameter(
            "columns",
            f"With application/vnd.barco.chunks: some of {', '.join(COLUMNS)}, by commas. "
            "Chunks then have their heads as stored and only the sections of these columns.",
        ),
    ),
    answers={
        200: "Events; with where none, if none that was looked at is meant.",
        204: "None yet.",
        400: "A parameter is wrong.",
        404: "No such topic or slice.",
        406: "None of the accepted formats.",
        410: "The events are gone; earliest is the first cursor that is left.",
        503: "The owner is restarting.",
    },
    tells=(
        Told("Barco-Next-Cursor", "Where to go on.", (200, 204)),
        Told("Barco-High-Watermark", "The end of the slice.", (200, 204)),
        START,
        Told("Barco-Columns", "The columns in the chunks, if some were asked for.", (200,)),
        Told("Retry-After", RETRY_AFTER, (204, 503)),
    ),
    kinds=(*CONSUME_FORMATS, EVENT_STREAM),
    shape="events",
)

_TOPIC = Route(
    "GET",
    "/v1/topic/{topic}/events",
    "listen.topic",
    "Events of all slices of a topic as they come, until the client hangs up.",
    "read",
    (
        Parameter("from", "An id, earliest, latest (else), timestamp:<µs> or a time."),
        _LAST_ID,
    ),
    answers={
        200: "Events, each with the place behind it in all slices as its id; no end.",
        400: "A parameter is wrong, or there are too many slices.",
        404: "No such topic.",
        406: "Only text/event-stream is offered.",
        410: "The events are gone; earliest is the first cursor that is left.",
        503: "The owner is restarting, or too many listen.",
    },
    tells=(Told("Retry-After", RETRY_AFTER, (503,)),),
    kinds=(EVENT_STREAM,),
)

EVENT_ROUTES = (_EVENTS, _TOPIC)
"""Part of ROUTES."""
