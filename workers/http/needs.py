"""What each route needs: all that is decided of who may do what over HTTP stands in one table.

A route that is not in it can not be called. The C core answers produces, by the same grants.
"""

from collections.abc import Iterable

from barco.errors import RequestError
from barco.model.access import ADMIN, CLUSTER, CONSUME, EVERY, METRICS, PRODUCE, USERS
from barco.workers.http.base.messages import Request, check_topic
from barco.workers.http.base.needs import Need, Object
from barco.workers.http.consuming.letters import dropped_from
from barco.workers.http.consuming.registration import registration
from barco.workers.http.schemas.table import ID, ROOT, SCHEMA_ROUTES, SUBJECT
from barco.workers.http.shippers.grafana import LINES, SAMPLES
from barco.workers.http.shippers.otlp import topic_of
from barco.workers.schemas.words import topic_of as topic_of_subject


def _topic(request: Request) -> Iterable[Object]:
    return ((request.variables["topic"], None),)


def _group(request: Request) -> Iterable[Object]:
    return ((None, request.variables["group"]),)


def _group_everywhere(request: Request) -> Iterable[Object]:
    return ((EVERY, request.variables["group"]),)


def _registered(request: Request) -> Iterable[Object]:
    args = registration(request)
    return [(topic, args["group"]) for topic in args["topics"]]


def _moved(request: Request) -> Iterable[Object]:
    given = request.json()
    topic = given.get("topic") if isinstance(given, dict) else None
    if not isinstance(topic, str):
        raise RequestError('The body is to be {"topic": ..., "to": ...}.')
    return ((topic, request.variables["group"]),)


def _leased(request: Request) -> Iterable[Object]:
    return ((check_topic(request.required("topic")), request.variables["group"]),)


def _telemetry(request: Request) -> Iterable[Object]:
    return ((topic_of(request), None),)


def _lines(request: Request) -> Iterable[Object]:
    return ((topic_of(request, LINES), None),)


def _samples(request: Request) -> Iterable[Object]:
    return ((topic_of(request, SAMPLES), None),)


def _queued(request: Request) -> Iterable[Object]:
    topics = request.values("topic")
    return [(check_topic(topic), request.variables["group"]) for topic in topics] or [(EVERY, None)]


def _staged(request: Request) -> Iterable[Object]:
    return ((check_topic(request.required("topic")), None),)


def _written(request: Request) -> Iterable[Object]:
    """The topics of a commit; what only says that tasks are alive names none."""
    given = request.json()
    rows = given.get("rows", {}) if isinstance(given, dict) else None
    if not isinstance(rows, dict):
        raise RequestError("rows is an object: topic, then slice, then the number of events.")
    return [(topic, None) for topic in rows] or [(None, None)]


def _subject(request: Request) -> Iterable[Object]:
    return ((topic_of_subject(request.variables["subject"]), None),)


def _every_subject(request: Request) -> Iterable[Object]:
    return ((EVERY, None),)


def _of_schemas(method: str, path: str) -> Need:
    """Who has to do with a topic reads its schemas, and whoever produces adds versions, which its
    level allows; to delete, and to change levels, is to administer. Of what has no subject in its
    path each handler shows what is of subjects that the user may read."""
    if path in (ROOT, f"{ROOT}/schemas/types"):
        return _ANYBODY
    if method in ("PUT", "DELETE"):
        return Need((ADMIN,), _subject if "{subject}" in path else _every_subject)
    if (method, path) == ("POST", f"{SUBJECT}/versions"):
        return Need((PRODUCE, ADMIN), _subject)
    if "{subject}" in path:
        return Need((CONSUME, PRODUCE, ADMIN), _subject)
    assert method == "GET", "what is posted is about a subject"
    return Need((CONSUME, PRODUCE, ADMIN) if path.startswith(ID) else _NAMES)


_NAMES = (CONSUME, PRODUCE, ADMIN, METRICS)
_ANYBODY = Need(())
_READS = Need((CONSUME,), _topic)
_OF_MEMBER = Need((CONSUME,))
"""And then on the topics and the group that the consumer is registered with: by whoever has looked
that up. A consumer's id is the user's own."""
_SHIPS = Need((PRODUCE,), stores=True)
"""And then on each topic that is named within: by whoever has read the body."""

NEEDS = {
    ("GET", "/ready"): Need((), open=True),
    ("GET", "/"): Need((), open=True),
    ("GET", "/console"): Need((), open=True),
    ("GET", "/console/{file}"): Need((), open=True),
    ("GET", "/v1/health"): Need((METRICS,)),
    ("GET", "/v1/figures"): Need((METRICS,)),
    ("GET", "/v1/figures/hour"): Need((METRICS,)),
    ("GET", "/status"): Need((METRICS,)),
    ("GET", "/metrics"): Need((METRICS,)),
    ("GET", "/v1/brokers"): _ANYBODY,
    ("GET", "/v1/topology"): _ANYBODY,
    ("GET", "/openapi.json"): _ANYBODY,
    ("PUT", "/v1/topology"): Need((CLUSTER,)),
    ("GET", "/v1/drains"): Need((CLUSTER, METRICS)),
    ("POST", "/v1/topic/{topic}/messages"): Need((PRODUCE,), _topic),
    ("PUT", "/v1/consumer/register"): Need((CONSUME,), _registered),
    ("POST", "/v1/consumer/register"): Need((CONSUME,), _registered),
    ("POST", "/v1/consumer/poll"): _OF_MEMBER,
    ("POST", "/v1/consumer/commit"): _OF_MEMBER,
    ("POST", "/v1/consumer/reject"): _OF_MEMBER,
    ("POST", "/v1/consumer/goodbye"): _OF_MEMBER,
    ("GET", "/v1/consumer/assignment"): _OF_MEMBER,
    ("POST", "/v1/consumer/heartbeat"): _OF_MEMBER,
    ("GET", "/v1/topic/{topic}/producers/{id}"): Need((PRODUCE,), _topic),
    ("DELETE", "/v1/topic/{topic}/delayed/{id}"): Need((PRODUCE,), _topic),
    ("GET", "/v1/topic/{topic}/slices"): Need((CONSUME, PRODUCE), _topic),
    ("GET", "/v1/topic/{topic}/slices/{token}/{index}/events"): _READS,
    ("GET", "/v1/topic/{topic}/events"): _READS,
    ("POST", "/v1/topic/{topic}/resend"): Need((CONSUME,), _topic, stores=True),
    ("POST", "/v1/topic/{topic}/dead/resend"): Need((PRODUCE,), _topic, stores=True),
    ("POST", "/v1/topic/{topic}/dead/drop"): Need((PRODUCE,), dropped_from, stores=True),
    ("GET", "/v1/topics"): Need((METRICS,)),
    ("GET", "/v1/topics/{topic}"): Need((CONSUME, PRODUCE, ADMIN), _topic),
    ("PUT", "/v1/topics/{topic}"): Need((ADMIN,), _topic),
    ("DELETE", "/v1/topics/{topic}"): Need((ADMIN,), _topic),
    ("GET", "/v1/groups"): Need((METRICS,)),
    ("GET", "/v1/groups/{group}"): Need((CONSUME, ADMIN), _group),
    ("PUT", "/v1/groups/{group}"): Need((CONSUME,), _queued),
    ("POST", "/v1/queue/{group}/lease"): Need((CONSUME,), _leased),
    ("POST", "/v1/queue/{group}/ack"): Need((CONSUME,), _leased),
    ("POST", "/v1/queue/{group}/nack"): Need((CONSUME,), _leased),
    ("POST", "/v1/queue/{group}/extend"): Need((CONSUME,), _leased),
    ("DELETE", "/v1/groups/{group}"): Need((ADMIN,), _group_everywhere),
    ("PUT", "/v1/groups/{group}/positions"): Need((CONSUME,), _moved),
    ("PUT", "/v1/writes/{writer}/{batch}/staged"): Need((PRODUCE,), _staged),
    ("PUT", "/v1/writes/{writer}/{batch}"): Need((PRODUCE,), _written),
    ("GET", "/v1/jobs"): Need((METRICS,)),
    ("GET", "/v1/writes/{writer}"): Need((PRODUCE,)),
    ("DELETE", "/v1/writes/{writer}"): Need((PRODUCE,)),
    ("GET", "/v1/writes/{writer}/{batch}"): Need((PRODUCE,)),
    ("DELETE", "/v1/writes/{writer}/{batch}"): Need((PRODUCE,)),
    ("GET", "/elastic"): _ANYBODY,
    ("GET", "/elastic/"): _ANYBODY,
    ("GET", "/elastic/_cluster/health"): _ANYBODY,
    ("POST", "/elastic/_bulk"): _SHIPS,
    ("PUT", "/elastic/_bulk"): _SHIPS,
    ("POST", "/elastic/{topic}/_bulk"): _SHIPS,
    ("PUT", "/elastic/{topic}/_bulk"): _SHIPS,
    ("POST", "/services/collector"): _SHIPS,
    ("POST", "/services/collector/event"): _SHIPS,
    ("POST", "/services/collector/event/1.0"): _SHIPS,
    ("POST", "/services/collector/raw"): _SHIPS,
    ("POST", "/services/collector/raw/1.0"): _SHIPS,
    ("POST", "/services/collector/ack"): _SHIPS,
    ("POST", "/v1/logs"): Need((PRODUCE,), _telemetry, stores=True),
    ("POST", "/loki/api/v1/push"): Need((PRODUCE,), _lines, stores=True),
    ("POST", "/api/v1/write"): Need((PRODUCE,), _samples, stores=True),
    ("GET", "/services/collector/health"): _ANYBODY,
    ("GET", "/services/collector/health/1.0"): _ANYBODY,
    ("GET", "/v1/audit"): Need((USERS,)),
    ("GET", "/v1/me"): _ANYBODY,
    ("GET", "/v1/users"): Need((USERS,)),
    ("PUT", "/v1/users/{user}"): Need((USERS,)),
    ("DELETE", "/v1/users/{user}"): Need((USERS,)),
    **{(each.method, each.path): _of_schemas(each.method, each.path) for each in SCHEMA_ROUTES},
}
"""By method and path, as the table of routes spells it."""
