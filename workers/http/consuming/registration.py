"""What a registration asks for: query parameters, or PolarStreams' JSON body."""

from typing import Any

from barco import limits
from barco.errors import RequestError
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import JSON, Request, media_type

START_LATEST = "startFromLatest"
START_EARLIEST = "startFromEarliest"

_REGISTRATION = ("id", "group", "topics", "onNewGroup", "sessionMs", "weight")
"""The fields of PolarStreams' body, and ours."""


def registration(request: Request) -> dict[str, Any]:
    """The arguments of a registration: query parameters, or PolarStreams' JSON body."""
    if request.body and media_type(request.header("content-type") or JSON) == JSON:
        given = request.json()
        if not isinstance(given, dict):
            raise RequestError("The body is to be a JSON object.")
        check_names("field", given, _REGISTRATION)
        consumer_id, group = given.get("id"), given.get("group", "default")
        topics, policy = given.get("topics"), given.get("onNewGroup", 0)
        session_ms = given.get("sessionMs", limits.CONSUMER_SESSION_MS_DEFAULT)
        weight = given.get("weight", 1)
        start = {0: START_LATEST, 1: START_EARLIEST}.get(policy) if policy in (0, 1) else policy
    else:
        consumer_id = request.value("consumerId", "consumer_id")
        group = request.value("group") or "default"
        topics = request.values("topic")
        start = request.value("onNewGroup") or START_LATEST
        # One over the most is refused, not cut down: nobody is to wait for longer than it says.
        most = limits.CONSUMER_SESSION_MS_MAX + 1
        default = limits.CONSUMER_SESSION_MS_DEFAULT
        session_ms = request.number("sessionMs", default=default, most=most)
        weight = request.number("weight", default=1, most=limits.CONSUMER_WEIGHT_MAX + 1)
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise RequestError("The topics are a list of names.")
    if not consumer_id or not topics:
        raise RequestError("A consumer id and at least one topic are needed.")
    if not (isinstance(consumer_id, str) and isinstance(group, str) and isinstance(start, str)):
        raise RequestError("The consumer id, the group and onNewGroup are strings.")
    if start not in (START_LATEST, START_EARLIEST):
        raise RequestError(f"onNewGroup is {START_LATEST} or {START_EARLIEST}.")
    topics = list(dict.fromkeys(topics))
    who = {"consumerId": request.user.own(consumer_id), "group": group, "sessionMs": session_ms}
    return who | {"topics": topics, "start": start, "weight": weight}
