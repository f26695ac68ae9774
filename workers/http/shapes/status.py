"""What a broker answers about itself and its topics, as JSON Schemas for /openapi.json.

Each object lists all that it may have; what is always there is required. A test holds a real answer
and the code that makes it against this.
"""

from typing import Any


def object_of(required: str, **properties: Any) -> dict[str, Any]:
    """An object. `required`: names, separated by spaces. A text as a property is its type."""
    given = {
        name: {"type": each} if isinstance(each, str) else each for name, each in properties.items()
    }
    return {
        "type": "object",
        "required": required.split(),
        "properties": given,
        "additionalProperties": False,
    }


def list_of(items: Any) -> dict[str, Any]:
    """An array of these."""
    return {"type": "array", "items": items}


def told(kind: str, description: str) -> dict[str, Any]:
    """A value of a type, and what it means."""
    return {"type": kind, "description": description}


FOLLOWER = object_of(
    "ordinal state groupsBehind synced",
    ordinal="integer",
    state={"type": "string", "enum": ["live", "behind", "down", "fenced"]},
    groupsBehind="integer",
    synced="boolean",
)

_REPLICATION = object_of(
    "role catchingUp writable uncleanEnds suspect",
    role="string",
    catchingUp="boolean",
    writable="boolean",
    uncleanEnds=told("integer", "Ends on an operator's word, or without what a member had."),
    suspect=told("boolean", "This copy has no vote until it is repaired."),
    suspectWhy=told("string", "Only if it is suspect."),
    accusedBy=told("integer", "The broker on whose word; absent: it was found here."),
    uncommittedGroups="integer",
    followers=list_of(FOLLOWER),
)

_STORAGE = object_of(
    "setAside",
    scrubPasses="integer",
    scrubPercent="integer",
    damagedSegments="integer",
    repairedGroups="integer",
    setAside=told("integer", "Logs that only this broker has, to be exported (barco recover)."),
    diskFull=told("boolean", "It has no room for events, and refuses them; only then."),
)

_SHARD = object_of(
    "worker ready",
    worker="integer",
    ready="boolean",
    shard=told("integer", "Of a range of the first cut: which."),
    seat=told("integer", "0 owns the range, 1 and 2 follow; absent: its broker is no member."),
    leads="boolean",
    waits=told("boolean", "Its range is none of the ring yet; only then."),
    replication=_REPLICATION,
    storage=_STORAGE,
)

_PEER = object_of(
    "ordinal address state",
    ordinal="integer",
    address="string",
    state={"type": "string", "enum": ["alive", "suspect", "down", "left"]},
    connected="boolean",
    version="string",
    incarnation="integer",
    topics="string",
)

_ROUTES = object_of(
    "version faults",
    version=told("string", "A hash of those that this broker has heard of."),
    faults=list_of({"type": "string"})
    | {"description": "What does not fit together, is not believed, or is led by nobody."},
)

LEAVING = object_of(
    "ordinal up drained generations copies bytesLeft bytesAll waits",
    ordinal=told("integer", "Of a broker that is none of the target."),
    up="boolean",
    drained=told("boolean", "Nothing is on it alone: it may be stopped and removed."),
    generations=told("integer", "That have ended, and of which it has or had a copy."),
    copies=told("integer", "That depots make of them, or have made."),
    bytesLeft="integer",
    bytesAll="integer",
    waits=list_of({"type": "string", "description": "For what, in words."}),
)

_SPAN = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
"""The oldest and the newest."""

_TLS = {
    **object_of(
        "expires kernel",
        expires=told("string", "When the certificate, or one of its chain, ends."),
        kernel=told("boolean", "Whether the kernel could seal what is sent. Not used yet."),
    ),
    "type": ["object", "null"],
    "description": "Of the ports for clients; null: they speak without TLS.",
}

_MUTUAL = {
    **object_of(
        "expires refusesPlain",
        expires=told("string", "When the certificate, or one of its chain, ends."),
        refusesPlain=told("boolean", "Whether brokers without TLS are refused."),
    ),
    "type": ["object", "null"],
    "description": "Between brokers; null: they speak without TLS. Only in a cluster.",
}

STATUS = object_of(
    "status inSync version versions engine engineReason nice worker shards openToAll tls",
    status={"type": "string", "enum": ["ready", "starting"]},
    reason=told("string", "Why it is not ready; only then."),
    inSync="boolean",
    degraded=list_of({"type": "string"}),
    waits=told("boolean", "It has joined, and holds nothing before barco scale; only then."),
    version="string",
    versions=object_of(
        "link gossip directory log",
        link=_SPAN | {"description": "Of what workers of brokers say to one another."},
        gossip=_SPAN | {"description": "Of what supervisors say to one another."},
        directory=_SPAN | {"description": "Of data directories; the newest is written."},
        log=_SPAN | {"description": "Of the logs in them, which travel as they are."},
    ),
    engine="string",
    engineReason="string",
    nice="integer",
    worker=told("integer", "Which one answered."),
    shards=list_of(_SHARD),
    openToAll="boolean",
    tls=_TLS,
    ordinal="integer",
    clusterSecret="boolean",
    mutualTls=_MUTUAL,
    peers=list_of(_PEER),
    routes=_ROUTES,
    leaves=LEAVING | {"description": "It is none of the target (any more); only then."},
    refusals={
        "type": "object",
        "description": "By ordinal: whom it has turned away, or who turns it away, and why.",
        "additionalProperties": {"type": "string"},
    },
)

READY = object_of(
    "ready",
    ready="boolean",
    inSync="boolean",
    restored=told("boolean", "It was restored from a backup, and this is the first start since."),
    diskFull=told("boolean", "It has no room for events, and refuses them; only then."),
    reason="string",
)

HEALTH = object_of(
    "headline wrong notes",
    headline=told("string", "Whether events can be written, and to how many disks."),
    wrong=list_of({"type": "string"}) | {"description": "The worst first; empty: all is well."},
    notes=list_of({"type": "string"}),
)

_SECONDS = {"type": ["number", "null"], "description": "Seconds; null: there were none."}
_STAGES = {
    "type": "object",
    "description": "How long produces took, of the last 10 to 15 s, by stage.",
    "additionalProperties": object_of("count p50 p99", count="integer", p50=_SECONDS, p99=_SECONDS),
}

FIGURES = object_of(
    "at brokers stages",
    at=told("integer", "Microseconds since 1970."),
    brokers=list_of(
        object_of(
            "ordinal workers silent figures stages",
            ordinal="integer",
            workers=told("integer", "Processes that have answered."),
            silent=told("integer", "And those that have not."),
            figures={
                "type": "object",
                "description": "By the names of the metrics; counters since its processes began.",
                "additionalProperties": {"type": "number"},
            },
            stages=_STAGES,
        )
    ),
    stages=_STAGES,
)

HOUR = object_of(
    "stepSeconds at figures stages silent",
    stepSeconds="integer",
    at=list_of(told("integer", "The end of a step, in microseconds since 1970.")),
    figures={
        "type": "object",
        "description": "By the names of the metrics: of counters how many a second, in each step.",
        "additionalProperties": list_of({"type": "number"}),
    },
    stages={
        "type": "object",
        "description": "The p99 in seconds at the process where it was longest; null: none came.",
        "additionalProperties": list_of({"type": ["number", "null"]}),
    },
    silent=told("integer", "Processes that have not answered."),
)

_TOPIC: dict[str, Any] = {
    "topic": "string",
    "retentionHours": told("integer", "0: as long as the broker's own retention lets them stay."),
    "retentionBytes": told("integer", "0: no limit of its own."),
    "compression": "string",
    "timestamps": "string",
    "schemaCheck": "string",
    "createdAt": {"type": ["integer", "null"], "description": "null: its first event made it."},
    "events": told("integer", "That are still there."),
}
_ITS = "topic retentionHours retentionBytes compression timestamps schemaCheck createdAt events"

TOPICS = object_of("topics", topics=list_of(object_of(_ITS, **_TOPIC)))

TOPIC = object_of(
    _ITS,
    **_TOPIC,
    slices=list_of(
        object_of(
            "token rangeIndex startOffset endOffset lastTimestamp",
            token="string",
            rangeIndex="integer",
            startOffset="string",
            endOffset="string",
            lastTimestamp=told("integer", "Microseconds since 1970; 0: it has none."),
        )
    ),
)
