"""The part of the API's table that is about who may do what."""

from barco.workers.http.base.routes import Parameter, Route

_SHA256 = "SHA-256 of a token, 64 hexadecimal digits. The token itself is not sent."
_EXCEEDED = "More is answered 429 quota-exceeded."
_USED_UP = "More is answered 403 quota-used-up."
_QUOTAS = {
    "requestsPerSecond": f"Of each worker; 0: without end. {_EXCEEDED}",
    "bytesPerSecond": f"Of bodies, of each worker; 0: without end. {_EXCEEDED}",
    "connections": f"At each worker; 0: without end. {_EXCEEDED}",
    "topics": f"That this user has made; 0: without end. {_USED_UP}",
    "groups": f"That this user has begun; 0: without end. {_USED_UP}",
    "stagedBytes": "Not committed, at each process that holds a shard; 0: without end. "
    f"{_EXCEEDED}",
}

USER_ROUTES = (
    Route(
        "GET",
        "/v1/me",
        "users.me",
        "Who asks, and what was granted: a page need not offer what would be refused.",
        "administration",
        answers={200: "Yours."},
        shape="me",
    ),
    Route(
        "GET",
        "/v1/users",
        "users.every",
        "All users and what they were granted. Nothing that shows who somebody is.",
        "administration",
        answers={200: "Users.", 503: "Nobody leads slice 0, where they are kept."},
        shape="users",
    ),
    Route(
        "GET",
        "/v1/audit",
        "users.audit",
        "Who was refused and who administered, of late: the last 500 lines of the log that each "
        "process has told since it began, newest first.",
        "administration",
        (Parameter("max", "So many at most: 100, if nothing is said; 1,000.", "integer"),),
        answers={200: "Lines, of every process that answered."},
        shape="audit",
    ),
    Route(
        "PUT",
        "/v1/users/{user}",
        "users.put",
        "Add a user, or change what is given: a token, grants, quotas.",
        "administration",
        body={
            "application/json": {
                "type": "object",
                "properties": {
                    "sha256": {"type": "string", "description": _SHA256},
                    "keep": {
                        "type": "boolean",
                        "description": "With sha256: the last token goes on as well.",
                    },
                    "grants": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "VERB, VERB:TOPICS or VERB:TOPICS:GROUPS each, instead of "
                        "all that there were.",
                    },
                    **{
                        name: {"type": "integer", "description": text}
                        for name, text in _QUOTAS.items()
                    },
                },
            }
        },
        answers={
            200: "Changed, durably; every broker hears of it within a second.",
            201: "Added.",
            400: "The name, the token or a grant is none.",
            404: "There is no such user, and a new one needs a token and grants.",
            409: "Another user has the token, or nobody would be left who may change users.",
            415: "The body is not JSON.",
            429: "There are as many users as there can be.",
            503: "Nobody leads slice 0, where they are kept.",
        },
        shape="user",
    ),
    Route(
        "DELETE",
        "/v1/users/{user}",
        "users.delete",
        "Remove a user: its tokens are nobody's within a second.",
        "administration",
        answers={
            204: "Removed.",
            404: "There is no such user.",
            409: "Nobody would be left who may change users.",
            503: "Nobody leads slice 0, where they are kept.",
        },
    ),
)
