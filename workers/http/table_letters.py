"""The table of the API, of dead letters that somebody has looked at."""

from typing import Any

from barco.model.queues import LETTERS_MAX
from barco.workers.http.base.routes import Route

_LETTERS: dict[str, Any] = {
    "application/json": {
        "type": "object",
        "required": ["letters"],
        "properties": {
            "letters": {
                "type": "array",
                "description": "Each by its place in the topic of dead letters.",
                "minItems": 1,
                "maxItems": LETTERS_MAX,
                "items": {
                    "type": "object",
                    "required": ["slice", "offset"],
                    "properties": {
                        "token": {"type": "string"},
                        "slice": {
                            "type": "integer",
                            "description": "Its index in the token range; without a token, its "
                            "number in the ring.",
                        },
                        "offset": {"type": "string"},
                    },
                },
            },
            "dead": {
                "type": "string",
                "description": "The topic of dead letters; else TOPIC.dead.",
            },
        },
    }
}

_WRONG = {
    400: "The body is wrong, or there is no such slice.",
    404: "There is no topic of dead letters.",
    415: "The body is not JSON.",
    503: "Nobody leads a slice now, or there is no room.",
}

_EVENTS: dict[str, Any] = {
    "application/json": {
        "type": "object",
        "required": ["events"],
        "properties": {
            "events": _LETTERS["application/json"]["properties"]["letters"]
            | {"description": "Each by its place in the topic."},
            "to": {"type": "string", "description": "Another topic; else the same one."},
        },
    }
}

LETTER_ROUTES = (
    Route(
        "POST",
        "/v1/topic/{topic}/resend",
        "letters.again",
        "Produce events of a topic again, to it or to another one, with key, value and headers as "
        "they were; the time is of now. Whoever is cut off may find some of them twice.",
        "consume",
        body=_EVENTS,
        answers={
            200: "Durable: so many; others and marked are 0.",
            403: "Not granted: consume of the topic, and produce where they go.",
            422: "A value is not of that topic's schema; none of these was sent.",
            **_WRONG,
            404: "There is no such topic.",
        },
        shape="letters",
    ),
    Route(
        "POST",
        "/v1/topic/{topic}/dead/resend",
        "letters.resend",
        "Produce dead letters of the topic to it again, with key, value and headers as they were. "
        "Each gets a mark then, an event behind it in its slice, and is not listed any more.",
        "consume",
        body=_LETTERS,
        answers={
            200: "Durable: so many. What came from another topic is left where it is.",
            403: "Not granted: produce there, and consume of the dead letters.",
            422: "A value is not of the topic's schema; none of these was sent.",
            **_WRONG,
        },
        shape="letters",
    ),
    Route(
        "POST",
        "/v1/topic/{topic}/dead/drop",
        "letters.drop",
        "Give dead letters up: each gets a mark, an event behind it in its slice, and is not "
        "listed any more. It stays there for as long as the topic keeps its events.",
        "consume",
        body=_LETTERS,
        answers={
            200: "Durable: so many.",
            403: "Not granted: produce of the dead letters.",
            **_WRONG,
        },
        shape="letters",
    ),
)
"""Part of ROUTES."""
