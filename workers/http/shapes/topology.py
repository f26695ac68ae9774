"""What /v1/topology answers, as a JSON Schema for /openapi.json."""

from barco.workers.http.shapes.status import FOLLOWER, LEAVING, list_of, object_of, told

_NUMBERS = {"type": "array", "items": {"type": "integer"}}

BROKER = object_of(
    "ordinal name ports token diskUuid",
    ordinal="integer",
    name="string",
    token=told("string", "Where its range begins in the first cut."),
    state={"type": "string", "enum": ["alive", "suspect", "down", "left", "unknown"]},
    since={
        "type": ["integer", "null"],
        "description": "When it came or went, microseconds since 1970; null: nobody here saw it.",
    },
    ports={"type": "object", "additionalProperties": {"type": "integer"}},
    diskUuid={"type": ["string", "null"]},
    version={"type": ["string", "null"]},
    shardEndpoints=list_of({"type": "string"}),
)

_SLICE = object_of(
    "index worker endpoint", index="integer", worker="integer", endpoint="string", ordinal="integer"
)

_RANGE = object_of(
    "token leader replicas slices",
    token="string",
    leader=told("integer", "The owner, whoever leads."),
    replicas=_NUMBERS,
    slices=list_of(_SLICE),
)

GENERATION = object_of(
    "epoch tail token members",
    epoch="integer",
    tail=told("integer", "-1: it is open."),
    token=told("string", "Of the range whose log it is: another one before a split."),
    members=_NUMBERS | {"description": "Who holds it; nobody if that is not known here."},
)

_SHARD = object_of(
    "worker ordinal endpoint token slices up version generations",
    worker={"type": ["integer", "null"]},
    ordinal={"type": ["integer", "null"]},
    endpoint="string",
    token=told("string", "Of the token range that it is a part of."),
    slices=_NUMBERS | {"description": "First and last, within the token range."},
    up="boolean",
    version={"type": ["integer", "null"]},
    generations=list_of(GENERATION),
    shard=told("integer", "Of a range of the first cut: which."),
    members=list_of(_NUMBERS),
)

_ROUTE = object_of(
    "first slices token version leader members handed",
    first=told("integer", "Its first slice, numbered in the whole ring."),
    slices=told("integer", "How many there are."),
    token=told("string", "Where its first slice begins."),
    version=told("integer", "The epoch of its open generation."),
    leader={"type": ["integer", "null"], "description": "null: nobody is known to lead."},
    members=_NUMBERS | {"description": "In the order of succession."},
    handed=told("boolean", "It was handed to the range before it, which has not taken it in yet."),
    followers={
        "type": ["array", "null"],
        "description": "With copies: as the leader says; null: none has answered.",
        "items": FOLLOWER,
    },
)

TARGET = object_of(
    "version brokers",
    version=told("integer", "0: none was ever set; it is the brokers of the first cut."),
    brokers=list_of(
        object_of(
            "ordinal workers",
            ordinal="integer",
            workers=told("integer", "Into how many ranges its part of the ring is divided."),
            host="string",
            diskUuid="string",
        )
    ),
    depots=list_of(
        object_of(
            "first ordinal",
            first=told("integer", "The first slice of a range of which it copies history."),
            ordinal="integer",
        )
    ),
)

DRAINS = object_of(
    "version brokers", version=told("integer", "Of the target."), brokers=list_of(LEAVING)
)

TOPOLOGY = object_of(
    "cluster ringSize slicesPerRange brokers ranges shards version routes target",
    cluster="string",
    ringSize="integer",
    slicesPerRange="integer",
    brokers=list_of(BROKER),
    ranges=list_of(_RANGE),
    shards=list_of(_SHARD),
    version=told("string", "A hash of the routes: another one where any of them is."),
    routes=list_of(_ROUTE),
    target={"$ref": "#/components/schemas/Target"},
)
