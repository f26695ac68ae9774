"""Who may make which call of the HTTP API: a second time, by what docs/access.md says."""

from typing import Any

GRANTS: dict[str, list[str]] = {
    "produces": ["produce:t"],
    "consumes": ["consume:t:g"],
    "administers": ["admin:t:g"],
    "administers_all": ["admin:*:g"],
    "measures": ["metrics"],
    "grows": ["cluster"],
    "names": ["users"],
    "elsewhere": ["produce:u", "consume:u:g", "consume:t:h", "admin:u:h"],
    "granted_nothing": [],
    "all": ["produce:*", "consume:*:*", "admin:*:*", "metrics", "cluster", "users"],
}
"""By user."""

SOMEBODY = frozenset(GRANTS)

PLACE = f"/v1/topic/t/slices/{-(2**63)}/0/events"
LEAVE = {"state": "staged"}
COMMIT = {"state": "prepared", "attempts": [], "rows": {"t": {"0": 1}}}

LETTERS = {"letters": [{"slice": 0, "offset": "0"}]}

EVENTS = {"events": [{"slice": 0, "offset": "0"}]}

AVRO = {"schema": '"string"'}

TOPICAL = {"produces", "consumes", "administers", "administers_all", "elsewhere"}
"""Who has to do with topic t; all others have to do with none."""

CALLS: dict[tuple[str, str], tuple[str, str, Any, set[str]]] = {
    ("GET", "/ready"): ("/ready", "", None, {*SOMEBODY, "no token", "wrong token"}),
    ("GET", "/"): ("/", "", None, {*SOMEBODY, "no token", "wrong token"}),
    ("GET", "/console"): ("/console", "", None, {*SOMEBODY, "no token", "wrong token"}),
    ("GET", "/console/{file}"): (
        *("/console/console.js", "", None),
        {*SOMEBODY, "no token", "wrong token"},
    ),
    ("GET", "/v1/health"): ("/v1/health", "", None, {"measures"}),
    ("GET", "/v1/figures"): ("/v1/figures", "", None, {"measures"}),
    ("GET", "/v1/figures/hour"): ("/v1/figures/hour", "", None, {"measures"}),
    ("GET", "/status"): ("/status", "", None, {"measures"}),
    ("GET", "/metrics"): ("/metrics", "", None, {"measures"}),
    ("GET", "/v1/brokers"): ("/v1/brokers", "", None, set(SOMEBODY)),
    ("GET", "/v1/topology"): ("/v1/topology", "", None, set(SOMEBODY)),
    ("GET", "/openapi.json"): ("/openapi.json", "", None, set(SOMEBODY)),
    ("PUT", "/v1/topology"): ("/v1/topology", "", {}, {"grows"}),
    ("GET", "/v1/drains"): ("/v1/drains", "", None, {"grows", "measures"}),
    ("PUT", "/v1/consumer/register"): (
        *("/v1/consumer/register", "consumerId=c&group=g&topic=t", None),
        {"consumes"},
    ),
    ("POST", "/v1/consumer/register"): (
        *("/v1/consumer/register", "", {"id": "c", "group": "g", "topics": ["t"]}),
        {"consumes"},
    ),
    ("POST", "/v1/consumer/poll"): (
        *("/v1/consumer/poll", "consumerId=c", None),
        {"consumes", "elsewhere"},
    ),
    ("POST", "/v1/consumer/commit"): (
        *("/v1/consumer/commit", "consumerId=c", None),
        {"consumes", "elsewhere"},
    ),
    ("POST", "/v1/consumer/reject"): (
        *("/v1/consumer/reject", "consumerId=c", {"events": []}),
        {"consumes", "elsewhere"},
    ),
    ("GET", "/v1/consumer/assignment"): (
        *("/v1/consumer/assignment", "consumerId=c", None),
        {"consumes", "elsewhere"},
    ),
    ("POST", "/v1/consumer/heartbeat"): (
        *("/v1/consumer/heartbeat", "consumerId=c", None),
        {"consumes", "elsewhere"},
    ),
    ("POST", "/v1/consumer/goodbye"): (
        *("/v1/consumer/goodbye", "consumerId=c", None),
        {"consumes", "elsewhere"},
    ),
    ("GET", "/v1/topic/{topic}/producers/{id}"): (
        *("/v1/topic/t/producers/p", "", None),
        {"produces"},
    ),
    ("DELETE", "/v1/topic/{topic}/delayed/{id}"): (
        *("/v1/topic/t/delayed/0.1.0", "", None),
        {"produces"},
    ),
    ("GET", "/v1/topic/{topic}/slices"): (
        *("/v1/topic/t/slices", "", None),
        {"produces", "consumes", "elsewhere"},
    ),
    ("GET", "/v1/topic/{topic}/slices/{token}/{index}/events"): (
        *(PLACE, "", None),
        {"consumes", "elsewhere"},
    ),
    ("GET", "/v1/topic/{topic}/events"): (
        *("/v1/topic/t/events", "from=nowhere", None),  # Else it would not end.
        {"consumes", "elsewhere"},
    ),
    # It takes as well to consume, or to produce, where the letters are: of these only all may.
    ("POST", "/v1/topic/{topic}/dead/resend"): ("/v1/topic/t/dead/resend", "", LETTERS, set()),
    ("POST", "/v1/topic/{topic}/dead/drop"): ("/v1/topic/t/dead/drop", "", LETTERS, set()),
    ("POST", "/v1/topic/{topic}/resend"): ("/v1/topic/t/resend", "", EVENTS, set()),
    ("GET", "/v1/jobs"): ("/v1/jobs", "", None, {"measures"}),
    ("GET", "/v1/audit"): ("/v1/audit", "", None, {"names"}),
    ("GET", "/v1/me"): ("/v1/me", "", None, set(SOMEBODY)),
    ("GET", "/v1/topics"): ("/v1/topics", "", None, {"measures"}),
    ("GET", "/v1/topics/{topic}"): (
        *("/v1/topics/t", "", None),
        {"produces", "consumes", "administers", "administers_all", "elsewhere"},
    ),
    ("PUT", "/v1/topics/{topic}"): (
        *("/v1/topics/t", "", {}),
        {"administers", "administers_all"},
    ),
    ("DELETE", "/v1/topics/{topic}"): (
        *("/v1/topics/t", "", None),
        {"administers", "administers_all"},
    ),
    ("GET", "/v1/groups"): ("/v1/groups", "", None, {"measures"}),
    ("GET", "/v1/groups/{group}"): (
        *("/v1/groups/g", "", None),
        {"consumes", "administers", "administers_all", "elsewhere"},
    ),
    ("DELETE", "/v1/groups/{group}"): ("/v1/groups/g", "", None, {"administers_all"}),
    ("PUT", "/v1/groups/{group}"): (
        *("/v1/groups/g", "type=queue&topic=t", None),
        {"consumes"},
    ),
    ("POST", "/v1/queue/{group}/lease"): ("/v1/queue/g/lease", "topic=t", None, {"consumes"}),
    ("POST", "/v1/queue/{group}/ack"): ("/v1/queue/g/ack", "topic=t", {}, {"consumes"}),
    ("POST", "/v1/queue/{group}/nack"): ("/v1/queue/g/nack", "topic=t", {}, {"consumes"}),
    ("POST", "/v1/queue/{group}/extend"): ("/v1/queue/g/extend", "topic=t", {}, {"consumes"}),
    ("PUT", "/v1/groups/{group}/positions"): (
        *("/v1/groups/g/positions", "", {"topic": "t", "to": "latest"}),
        {"consumes"},
    ),
    ("PUT", "/v1/writes/{writer}/{batch}/staged"): (
        *("/v1/writes/w/0/staged", "topic=t&slice=0&attempt=a&seq=0", None),
        {"produces"},
    ),
    ("PUT", "/v1/writes/{writer}/{batch}"): ("/v1/writes/w/0", "", COMMIT, {"produces"}),
    ("GET", "/v1/writes/{writer}"): ("/v1/writes/w", "", None, {"produces", "elsewhere"}),
    ("DELETE", "/v1/writes/{writer}"): ("/v1/writes/w", "", None, {"produces", "elsewhere"}),
    ("GET", "/v1/writes/{writer}/{batch}"): (
        *("/v1/writes/w/0", "", None),
        {"produces", "elsewhere"},
    ),
    ("DELETE", "/v1/writes/{writer}/{batch}"): (
        *("/v1/writes/w/0", "", None),
        {"produces", "elsewhere"},
    ),
    ("GET", "/elastic"): ("/elastic", "", None, set(SOMEBODY)),
    ("GET", "/elastic/"): ("/elastic/", "", None, set(SOMEBODY)),
    ("GET", "/elastic/_cluster/health"): ("/elastic/_cluster/health", "", None, set(SOMEBODY)),
    ("POST", "/elastic/_bulk"): ("/elastic/_bulk", "", {}, {"produces", "elsewhere"}),
    ("PUT", "/elastic/_bulk"): ("/elastic/_bulk", "", {}, {"produces", "elsewhere"}),
    ("POST", "/elastic/{topic}/_bulk"): ("/elastic/t/_bulk", "", {}, {"produces", "elsewhere"}),
    ("PUT", "/elastic/{topic}/_bulk"): ("/elastic/t/_bulk", "", {}, {"produces", "elsewhere"}),
    **{
        ("POST", path): (path, "index=t", {"event": 1}, {"produces"})
        for path in ("/services/collector", "/services/collector/event")
    },
    ("POST", "/services/collector/event/1.0"): (
        *("/services/collector/event/1.0", "index=t", {"event": 1}),
        {"produces"},
    ),
    ("POST", "/services/collector/raw"): ("/services/collector/raw", "index=t", 1, {"produces"}),
    ("POST", "/services/collector/raw/1.0"): (
        *("/services/collector/raw/1.0", "index=t", 1),
        {"produces"},
    ),
    ("POST", "/v1/logs"): ("/v1/logs", "topic=t", {}, {"produces"}),
    ("POST", "/loki/api/v1/push"): (
        *("/loki/api/v1/push", "topic=t", {"streams": []}),
        {"produces"},
    ),
    ("POST", "/api/v1/write"): ("/api/v1/write", "topic=t", {}, {"produces"}),
    ("POST", "/services/collector/ack"): (
        *("/services/collector/ack", "channel=c", {"acks": [1]}),
        {"produces", "elsewhere"},
    ),
    **{
        ("GET", path): (path, "", None, set(SOMEBODY))
        for path in ("/services/collector/health", "/services/collector/health/1.0")
    },
    ("GET", "/v1/users"): ("/v1/users", "", None, {"names"}),
    ("PUT", "/v1/users/{user}"): ("/v1/users/x", "", {"grants": []}, {"names"}),
    ("DELETE", "/v1/users/{user}"): ("/v1/users/x", "", None, {"names"}),
    ("GET", "/registry"): ("/registry", "", None, set(SOMEBODY)),
    ("GET", "/registry/schemas/types"): ("/registry/schemas/types", "", None, set(SOMEBODY)),
    **{
        ("GET", f"/registry/{path}"): (f"/registry/{path}", "", None, {*TOPICAL, "measures"})
        for path in ("schemas", "subjects", "config", "mode")
    },
    **{
        ("GET", "/registry/schemas/ids/{number}" + end): (
            *("/registry/schemas/ids/1" + end, "", None),
            TOPICAL,
        )
        for end in ("", "/schema", "/subjects", "/versions")
    },
    **{
        ("GET", f"/registry/{path}"): (
            *(f"/registry/{path}".format(subject="t-value", version=1), "", None),
            TOPICAL,
        )
        for path in (
            *("subjects/{subject}/versions", "subjects/{subject}/versions/{version}"),
            "subjects/{subject}/versions/{version}/schema",
            "subjects/{subject}/versions/{version}/referencedby",
            *("config/{subject}", "mode/{subject}"),
        )
    },
    **{
        ("POST", f"/registry/{path}"): (
            *(f"/registry/{path}".format(subject="t-key", version=1), "", AVRO),
            TOPICAL,
        )
        for path in (
            "subjects/{subject}",
            "compatibility/subjects/{subject}/versions",
            "compatibility/subjects/{subject}/versions/{version}",
        )
    },
    ("POST", "/registry/subjects/{subject}/versions"): (
        *("/registry/subjects/t-value/versions", "", AVRO),
        {"produces", "administers", "administers_all"},
    ),
    **{
        ("DELETE", f"/registry/{path}"): (
            *(f"/registry/{path}".format(subject="t", version=1), "", None),
            {"administers", "administers_all"},
        )
        for path in (
            *("subjects/{subject}", "subjects/{subject}/versions/{version}"),
            *("config/{subject}", "mode/{subject}"),
        )
    },
    ("PUT", "/registry/config/{subject}"): (
        *("/registry/config/t-value", "", {"compatibility": "FULL"}),
        {"administers", "administers_all"},
    ),
    ("PUT", "/registry/mode/{subject}"): (
        *("/registry/mode/t-value", "", {"mode": "READWRITE"}),
        {"administers", "administers_all"},
    ),
    ("PUT", "/registry/config"): (
        *("/registry/config", "", {"compatibility": "FULL"}),
        {"administers_all"},
    ),
    ("PUT", "/registry/mode"): ("/registry/mode", "", {"mode": "READONLY"}, {"administers_all"}),
    ("DELETE", "/registry/config"): ("/registry/config", "", None, {"administers_all"}),
    ("DELETE", "/registry/mode"): ("/registry/mode", "", None, {"administers_all"}),
}
"""By method and path of a route: path, query and body of a call, and who may make it."""
