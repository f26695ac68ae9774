"""Who may call what: every route with every kind of user, and what each is answered."""

import asyncio
import base64
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from reference.calls import CALLS, COMMIT, GRANTS, LEAVE

from barco.model.access import ALL, QUOTAS, AccessTable, Grant, User, hash_of
from barco.model.options import WorkerOptions
from barco.workers.http.app import is_open
from barco.workers.http.base.audit import GIVEN, HEADER, KEPT_OF_ONE
from barco.workers.http.base.messages import Call, Response
from barco.workers.http.needs import NEEDS
from barco.workers.http.table import ROUTES

from ..twin import Answer, Broker


def shown(who: str) -> dict[str, str]:
    """By whom a request is sent, whose token is the name; NAME:TOKEN is said as Basic has it."""
    if who == "no token":
        return {}
    if ":" in who:
        return {"Authorization": f"Basic {base64.b64encode(who.encode()).decode()}"}
    return {"Authorization": f"Bearer {who}"}


USERS = {name: tuple(map(Grant.parse, grants)) for name, grants in GRANTS.items()}


NAMED = {
    "all:all": "all",
    "elsewhere:elsewhere": "elsewhere",
    "measures:all": "wrong token",  # All's token, and it is not said to be all's.
    ":all": "wrong token",
    "all:measures": "wrong token",
    "all:nobody": "wrong token",
}
"""Said by name and password, and who that is."""


class Closed(Broker):
    """With access on, and the users above: each one's token is the name."""

    def options(self, worker: int) -> WorkerOptions:
        options = super().options(worker)
        options.access.update(required=True)
        return options

    def know(self, users: Mapping[str, tuple[Grant, ...]]) -> None:
        table = AccessTable.of(User(n, (hash_of(n),), g) for n, g in users.items())
        for service in self.services:
            assert service is not None
            service.access.table = table

    async def ask(
        self, who: str, method: str, path: str, query: str = "", body: Any = None
    ) -> Answer:
        headers = shown(who)
        if body is not None:
            headers["Content-Type"] = "application/json"
        given = b"" if body is None else json.dumps(body).encode()
        return await self.request(method, path, query, headers=headers, body=given, worker=0)


def closed() -> Closed:
    broker = Closed()
    broker.know(USERS)
    broker.produce("t", 0, b"1", b"2")
    return broker


def test_every_route_says_what_it_needs_and_nothing_else_does() -> None:
    assert set(NEEDS) == {(route.method, route.path) for route in ROUTES}
    assert set(CALLS) | {("POST", "/v1/topic/{topic}/messages")} == set(NEEDS)
    opened = {"/ready", "/", "/console", "/console/{file}"}
    assert {key for key, need in NEEDS.items() if need.open} == {("GET", path) for path in opened}
    assert all(is_open(path) is need.open for (_, path), need in NEEDS.items())
    nobody_asks = {key[1] for key, need in NEEDS.items() if not need.verbs and not need.open}
    open_to_all = {"/v1/brokers", "/v1/topology", "/v1/me", "/openapi.json"}
    open_to_all |= {"/registry", "/registry/schemas/types"}
    shippers = {"/elastic", "/elastic/", "/elastic/_cluster/health"}
    shippers |= {f"/services/collector/health{version}" for version in ("", "/1.0")}
    assert nobody_asks == open_to_all | shippers


@pytest.mark.parametrize("key", CALLS, ids=" ".join)
def test_the_matrix(key: tuple[str, str]) -> None:
    path, query, body, allowed = CALLS[key]

    async def main() -> None:
        for who in (*USERS, *NAMED, "no token", "wrong token"):
            answer = await closed().ask(who, key[0], path, query, body)
            refused = {401, 403} & {answer.status}
            user = NAMED.get(who, who)
            if user in allowed | {"all"}:
                assert not refused, (who, answer)
                continue
            assert answer.status == (401 if user.endswith("token") else 403), (who, answer)
            slug = answer.json["type"].rpartition(":")[2]
            assert slug == ("unauthorized" if answer.status == 401 else "forbidden")
            assert ("www-authenticate" in answer.headers) == (answer.status == 401)

    asyncio.run(main())


@pytest.mark.parametrize("key", CALLS, ids=" ".join)
def test_closed_before_the_users_are_known(key: tuple[str, str]) -> None:
    path, query, body, _ = CALLS[key]

    async def main() -> None:
        for who in ("all", "no token"):
            answer = await Closed().ask(who, key[0], path, query, body)
            assert is_open(path) or answer.status == 503, answer

    asyncio.run(main())


def test_a_header_that_two_could_read_differently_is_nobodys() -> None:
    async def main() -> None:
        broker = closed()
        app = broker.apps[0]
        assert app is not None
        good = (b"Authorization", b"Bearer all")
        for headers, status in (
            ([good], 200),
            ([(b"authorization", b"bearer all")], 200),
            ([good, good], 401),
            ([good, (b"authorization", b"Bearer x")], 401),
            ([(b"Authorization", b"Basic all")], 401),
            ([(b"Authorization", b"Basic YWxsOmFsbA==")], 200),
            ([good, (b"Authorization", b"Basic YWxsOmFsbA==")], 401),
            ([(b"Authorization", b"Bearer  all")], 401),
            ([(b"Authorization", b"Bearer all" + b" " * 126)], 401),
            ([(b"Authorization", b"Basic " + b"YWxs" * 10_000)], 401),
            ([(b"Authorization", b"")], 401),
        ):
            answer = await app.handle(Call(0, "GET", "/v1/topics", "", headers, b""))
            assert answer.status == status, headers

    asyncio.run(main())


def test_unknown_paths_and_other_methods_are_told_to_nobody() -> None:
    async def main() -> None:
        for method, path in (("GET", "/nothing"), ("PATCH", "/v1/topics"), ("OPTIONS", "/status")):
            assert (await closed().ask("wrong token", method, path)).status == 401
        for path in ("/ready/", "/consoles", "//", "/console%2f", "/Console"):
            assert (await closed().ask("wrong token", "GET", path)).status == 401, path
        answer = await closed().ask("wrong token", "GET", "/console/../status")
        assert answer.status == 404

    asyncio.run(main())


def test_consumers_belong_to_who_registered_them() -> None:
    users = {"a": ALL, "b": ALL}

    async def main() -> None:
        broker = closed()
        broker.know(users)
        query = "consumerId=c&group=g&topic=t&onNewGroup=startFromEarliest"
        assert (await broker.ask("a", "PUT", "/v1/consumer/register", query)).status == 200
        for call in ("poll", "commit", "goodbye"):
            answer = await broker.ask("b", "POST", f"/v1/consumer/{call}", "consumerId=c")
            assert answer.status == 409, (call, answer)
            for made_up in ("a:c", "b:c", "%3Ac"):
                answer = await broker.ask(
                    "b", "POST", f"/v1/consumer/{call}", f"consumerId={made_up}"
                )
                assert answer.status == 409, (call, made_up, answer)
        answer = await broker.ask("a", "POST", "/v1/consumer/poll", "consumerId=c")
        assert answer.status == 200 and answer.json[0]["values"] == [1, 2]

    asyncio.run(main())


def test_a_registration_asks_for_each_of_its_topics() -> None:
    async def main() -> None:
        query = "consumerId=c&group=g&topic=t&topic=u"
        answer = await closed().ask("consumes", "PUT", "/v1/consumer/register", query)
        assert answer.status == 403 and answer.json["topic"] == "u"
        answer = await closed().ask(
            *("consumes", "PUT", "/v1/consumer/register"),
            "consumerId=c&group=h&topic=t",
        )
        assert answer.status == 403 and answer.json["group"] == "h"

    asyncio.run(main())


def test_a_grant_that_is_gone_ends_polls_of_who_is_registered() -> None:
    async def main() -> None:
        broker = closed()
        query = "consumerId=c&group=g&topic=t&onNewGroup=startFromEarliest"
        assert (await broker.ask("consumes", "PUT", "/v1/consumer/register", query)).status == 200
        broker.know({**USERS, "consumes": (Grant.parse("consume:u:g"),)})
        answer = await broker.ask("consumes", "POST", "/v1/consumer/poll", "consumerId=c")
        assert answer.status == 403

    asyncio.run(main())


@pytest.mark.parametrize("left", ({}, {"consumes": (Grant.parse("metrics"),)}))
def test_a_poll_that_waits_is_not_answered_to_who_may_not_any_more(
    left: dict[str, tuple[Grant, ...]],
) -> None:
    """And what it would have got comes to the next one."""

    async def main() -> None:
        broker = closed()
        query = "consumerId=c&group=g&topic=t&onNewGroup=startFromLatest"
        assert (await broker.ask("consumes", "PUT", "/v1/consumer/register", query)).status == 200
        polls = "consumerId=c&waitMs=20000"
        waits = asyncio.create_task(broker.ask("consumes", "POST", "/v1/consumer/poll", polls))
        await broker.settle()
        others = {name: grants for name, grants in USERS.items() if name != "consumes"}
        broker.know({**others, **left})
        broker.produce("t", 0, b"3")
        answer = await waits
        assert answer.status == (503 if left else 401) and b"values" not in answer.body
        broker.know(USERS)
        answer = await broker.ask("consumes", "POST", "/v1/consumer/poll", "consumerId=c")
        assert answer.status == 200 and answer.json[0]["values"] == [3]

    asyncio.run(main())


def test_a_commit_asks_for_each_of_its_topics() -> None:
    async def main() -> None:
        body = {**COMMIT, "rows": {"t": {"0": 1}, "u": {"0": 1}}}
        answer = await closed().ask("produces", "PUT", "/v1/writes/w/0", "", body)
        assert answer.status == 403 and answer.json["topic"] == "u"
        assert (await closed().ask("produces", "PUT", "/v1/writes/w/0", "", LEAVE)).status == 404
        for wrong in ([], {"rows": []}, "x"):
            answer = await closed().ask("elsewhere", "PUT", "/v1/writes/w/0", "", wrong)
            assert answer.status == 400

    asyncio.run(main())


def quota(requests: int, bytes_: int) -> dict[str, int]:
    given = {"requestsPerSecond": requests, "bytesPerSecond": bytes_}
    return dict.fromkeys(QUOTAS, 0) | given


def test_users_over_http() -> None:
    async def main() -> None:
        broker = closed()
        digest = hash_of("x").hex()
        desks = [service.access for service in broker.services if service is not None]
        put = {"sha256": hash_of("all").hex(), "grants": ["users", "metrics"]}
        path = "/v1/users/root"
        assert (await broker.ask("names", "PUT", path, "", put)).status == 201
        answer = await broker.ask(
            "names", "PUT", "/v1/users/x", "", {"sha256": digest, "grants": []}
        )
        assert (answer.status, answer.json) == (201, {"name": "x", "created": True})
        for change in ({"requestsPerSecond": 7}, {"grants": ["metrics"]}, {"bytesPerSecond": 9}):
            answer = await broker.ask("names", "PUT", "/v1/users/x", "", change)
            assert (answer.status, answer.json) == (200, {"name": "x", "created": False})
        for wrong in ({}, {"keep": True}, {"bytesPerSecond": -1}, {"requestsPerSecond": None}):
            answer = await broker.ask("names", "PUT", "/v1/users/x", "", wrong)
            assert answer.status == 400
        told = await broker.ask("names", "GET", "/v1/users")
        assert told.json["users"] == [
            {"name": "root", "tokens": 1, "grants": ["users", "metrics"]} | quota(0, 0),
            {"name": "x", "tokens": 1, "grants": ["metrics"]} | quota(7, 9),
        ]
        assert digest.encode() not in told.body
        await desks[1].look(broker.siblings)
        assert desks[1].who("x") is not None
        assert (await broker.ask("names", "DELETE", "/v1/users/x")).status == 204
        assert (await broker.ask("names", "DELETE", "/v1/users/x")).status == 404
        assert (await broker.ask("names", "DELETE", path)).status == 409

    asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    ({}, [], {"sha256": "x"}, {"sha256": "A" * 64}, {"keep": True}, {"keep": 1, "sha256": "a" * 64})
    + ({"grants": "users"}, {"grants": [7]}, {"grants": ["all"]}, {"token": "x"}, {"sha256": None}),
)
def test_what_is_no_change_of_a_user(body: Any) -> None:
    async def main() -> None:
        broker = closed()
        put = {"sha256": hash_of("x").hex(), "grants": ["users"]}
        assert (await broker.ask("names", "PUT", "/v1/users/x", "", put)).status == 201
        answer = await broker.ask("names", "PUT", "/v1/users/x", "", body)
        assert answer.status == 400, answer

    asyncio.run(main())


def test_the_line_of_the_log_and_the_answer_have_one_id(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("barco"), "propagate", True)
    logging.getLogger("barco").removeHandler(caplog.handler)  # Who propagates is heard at the root.
    caplog.set_level(logging.INFO, "barco.audit")

    async def main() -> None:
        broker = closed()
        for who, method, path, message in (
            ("no token", "GET", "/v1/topics", "refused"),
            ("produces", "PUT", "/v1/topics/t", "refused"),
            ("administers", "PUT", "/v1/topics/t", "administered"),
            ("administers", "DELETE", "/v1/topics/t", "administered"),
            ("names", "DELETE", "/v1/users/x", "administered"),
        ):
            caplog.clear()
            answer = await broker.ask(who, method, path, "", {} if method == "PUT" else None)
            line = vars(caplog.records[0])
            assert len(caplog.records) == 1 and line["message"] == message
            assert line["request"] == answer.headers["barco-request-id"]
            assert line["status"] == answer.status and line["method"] == method
            assert line["user"] == ("" if who == "no token" else who)
        caplog.clear()
        answer = await broker.ask("measures", "GET", "/v1/topics")
        assert not caplog.records and "barco-request-id" not in answer.headers
        answer = await broker.ask("consumes", "GET", "/v1/topics/t/x")
        assert answer.status == 404 and not caplog.records
        assert "barco-request-id" not in answer.headers, "the core says one"
        app = broker.apps[0]
        assert app is not None
        named = [(b"Authorization", b"Bearer produces"), (GIVEN, b"order-7")]
        said = await app.handle(Call(0, "PUT", "/v1/topics/t", "", named, b"{}"))
        assert said.status == 403 and vars(caplog.records[0])["request"] == "order-7"
        assert HEADER not in dict(said.headers), "the core says what the client did"

    asyncio.run(main())


def test_documents_that_are_refused_are_told_as_requests_are(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("barco"), "propagate", True)
    logging.getLogger("barco").removeHandler(caplog.handler)  # Who propagates is heard at the root.
    caplog.set_level(logging.INFO, "barco.audit")

    def bulk(*named: tuple[str, str]) -> bytes:
        lines = [json.dumps({each[0]: {"_index": each[1]}}).encode() for each in named]
        documents = [b"" if each[0] == "delete" else b"{}\n" for each in named]
        return b"".join(b"%s\n%s" % each for each in zip(lines, documents, strict=True))

    async def main() -> None:
        broker = closed()
        app = broker.apps[0]
        assert app is not None

        async def sent(who: str, *named: tuple[str, str]) -> tuple[Any, list[dict[str, Any]]]:
            caplog.clear()
            headers = [(b"Authorization", f"Bearer {who}".encode())]
            answer = await app.handle(Call(0, "POST", "/elastic/_bulk", "", headers, bulk(*named)))
            assert answer.status == 200
            return answer, [vars(each) for each in caplog.records]

        refused = [("index", "a.1"), ("create", "a.2"), ("create", "a.1"), ("delete", "t")]
        answer, lines = await sent("elsewhere", *refused)
        assert [(line["topic"], line["events"]) for line in lines] == [("a.1", 2), ("a.2", 1)]
        for line in lines:
            assert (line["message"], line["user"], line["status"]) == ("refused", "elsewhere", 403)
            assert (line["method"], line["path"]) == ("POST", "/elastic/_bulk")
            assert line["request"] == dict(answer.headers)["Barco-Request-Id"]
            assert "was not granted produce" in line["why"]
        answer, lines = await sent("all", ("delete", "t"))  # 400: that is no matter of rights.
        assert not lines and "Barco-Request-Id" not in dict(answer.headers)
        _, lines = await sent("produces", *(("index", f"t.{each}") for each in range(200)))
        assert len(lines) == KEPT_OF_ONE
        caplog.clear()
        app.audit.tell(([], []))
        assert vars(caplog.records[0])["left_out"] == 200 - KEPT_OF_ONE

    asyncio.run(main())


def test_a_failure_at_once_has_an_id_as_any_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("barco"), "propagate", True)

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        app = closed().apps[0]
        assert app is not None
        monkeypatch.setitem(app._at_once, "queues.lease", fail)
        headers = [(b"Authorization", b"Bearer all")]
        call = Call(0, "POST", "/v1/queue/g/lease", "topic=t", headers, b"")
        answer = app.at_once(call)
        assert isinstance(answer, Response) and answer.status == 500
        assert vars(caplog.records[0])["request"] == dict(answer.headers)[HEADER]
        names = [name for name, _ in answer.headers if name == HEADER]
        assert len(names) == 1, "the line of its refusal would have another"

    asyncio.run(main())


def test_nothing_is_told_where_access_is_off(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        answer = await Broker().request("PUT", "/v1/topics/t", body=b"{}")
        assert answer.status == 201 and "barco-request-id" not in answer.headers
        answer = await Broker().request("GET", "/nothing")
        assert answer.status == 404 and "barco-request-id" not in answer.headers

    asyncio.run(main())
