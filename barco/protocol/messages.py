"""The frames on the channel between the supervisor and a worker, by their `type`.

Worker to supervisor:

    {"type": "ready", "pid", "session", "engine", "engine_reason", "writable"}
                                                                once, when the shard is recovered
    {"type": "writable"}                                        once, if it was not so by then:
                                                                every slice takes events through it
    {"type": "heartbeat", "stats": {...}}                       every second, also while recovering
    {"type": "fatal", "text"}                                   one line, just before it exits
    {"type": "seen", "version"}                                 this view is in force here
    {"type": "request", "id", "op", "args": {...}}              answered by one "reply"
    {"type": "leads", "route"}                                  who leads a generation, packed
                                                                (`barco.cluster.ring.routes`): it is
                                                                decided in this worker's journal
    {"type": "topics-digest", "digest", "count"}                of the topic settings it has
    {"type": "target", "target", "kept"}                        it leads slice 0, and keeps this one
                                                                (`barco.cluster.ring.target`); or it
                                                                has asked who does
    {"type": "workers"}                                         the target has as many for this
                                                                broker as its configuration asks for
    {"type": "answer", "id", "ok": true, "result"}              to an "ask"
    {"type": "answer", "id", "ok": false, "error": {...}}       (`barco.errors.pack_error`)

Supervisor to worker:

    {"type": "view", "version", "since", "groups": {...}, "removed": [...]}
                                                    what changed since a version; 0: everything
    {"type": "reply", "id", "ok": true, "result": {...}}
    {"type": "reply", "id", "ok": false, "status", "slug", "detail"}
    {"type": "cluster", "version", "brokers": [{"ordinal", "disk_uuid", "session", "address",
     "host", "ports": {...}, "workers", "processes": [[number, token, session]], "version",
     "incarnation", "state"}], "routes": [packed], "hints": [packed]}
                                                    what changed: brokers, and who leads what; with
                                                    the first, what was so when this broker last ran
    {"type": "processes", "processes": [...], "endpoints": {number: "host:port"},
     "sessions": {number: session}}                 this broker's processes are others than before,
                                                    or others of them are ready; sessions of these
                                                    (`barco.model.ranges.to_plain`)
    {"type": "target", "target"}                    the one that its keeper has said
    {"type": "target", "ask": true}                 gossip tells another one: ask its keeper
    {"type": "tls", "tls": {...}}                   the certificate for connections to come, and
                                                    keys of tickets (`WorkerOptions.tls`)
    {"type": "log", "level"}                        from which level on there are lines of the log
    {"type": "ask", "id", "op", "args": {...}}      for whoever leads slice 0; answered by one
                                                    "answer", and asked of one that is ready
    {"type": "format", "format"}                    the newest format of logs that may be written:
                                                    every broker reads it
    {"type": "drain"}                               finish, seal, exit 0

A channel that ends is an order to exit: the supervisor is gone. A worker gets its first view
right after it has said "ready".
"""

READY = "ready"
WRITABLE = "writable"
HEARTBEAT = "heartbeat"
FATAL = "fatal"
SEEN = "seen"
REQUEST = "request"
LEADS = "leads"
TOPICS_DIGEST = "topics-digest"
TARGET = "target"
WORKERS = "workers"
ANSWER = "answer"

VIEW = "view"
REPLY = "reply"
CLUSTER = "cluster"
PROCESSES = "processes"
TLS = "tls"
LOG = "log"
ASK = "ask"
FORMAT = "format"
DRAIN = "drain"

WANTED = "format_wanted"
"""Of a worker's stats: the newest format of logs that an event was refused for, or 0."""
