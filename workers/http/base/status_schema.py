"""What /status and /ready answer, as JSON Schemas for /openapi.json.

Each object lists all that it may have; what is always there is required. A test holds a real answer
and the code that makes it against this.
"""

from typing import Any


def _object(required: str, **properties: Any) -> dict[str, Any]:
    """`required`: names, separated by spaces. A text as a property is one of its types."""
    given = {
        name: {"type": each} if isinstance(each, str) else each for name, each in properties.items()
    }
    return {
        "type": "object",
        "required": required.split(),
        "properties": given,
        "additionalProperties": False,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _told(kind: str, description: str) -> dict[str, Any]:
    return {"type": kind, "description": description}


_FOLLOWER = _object(
    "ordinal state groupsBehind synced",
    ordinal="integer",
    state={"type": "string", "enum": ["live", "behind", "down", "fenced"]},
    groupsBehind="integer",
    synced="boolean",
)

_REPLICATION = _object(
    "role catchingUp writable uncleanEnds suspect",
    role="string",
    catchingUp="boolean",
    writable="boolean",
    uncleanEnds=_told("integer", "Ends on an operator's word, or without what a member had."),
    suspect=_told("boolean", "This copy has no vote until it is repaired."),
    suspectWhy=_told("string", "Only if it is suspect."),
    accusedBy=_told("integer", "The broker on whose word; absent: it was found here."),
    uncommittedGroups="integer",
    followers=_list(_FOLLOWER),
)

_STORAGE = _object(
    "setAside",
    scrubPasses="integer",
    scrubPercent="integer",
    damagedSegments="integer",
    repairedGroups="integer",
    setAside=_told("integer", "Logs that only this broker has, to be exported (barco recover)."),
)

_SHARD = _object(
    "worker ready",
    worker="integer",
    ready="boolean",
    shard="integer",
    seat=_told("integer", "0 owns the range, 1 and 2 follow."),
    leads="boolean",
    replication=_REPLICATION,
    storage=_STORAGE,
)

_PEER = _object(
    "ordinal address state",
    ordinal="integer",
    address="string",
    state={"type": "string", "enum": ["alive", "suspect", "down", "left"]},
    connected="boolean",
    version="string",
    incarnation="integer",
    topics="string",
)

STATUS = _object(
    "status inSync version engine engineReason nice worker shards openToAll",
    status={"type": "string", "enum": ["ready", "starting"]},
    reason=_told("string", "Why it is not ready; only then."),
    inSync="boolean",
    degraded=_list({"type": "string"}),
    version="string",
    engine="string",
    engineReason="string",
    nice="integer",
    worker=_told("integer", "Which one answered."),
    shards=_list(_SHARD),
    openToAll="boolean",
    ordinal="integer",
    clusterSecret="boolean",
    peers=_list(_PEER),
    refusals={
        "type": "object",
        "description": "By ordinal: whom it has turned away, or who turns it away, and why.",
        "additionalProperties": {"type": "string"},
    },
)

READY = _object("ready", ready="boolean", inSync="boolean", reason="string")
