"""The application: one request in, one response out."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from barco.errors import (
    BarcoError,
    BrokerError,
    NotReadyError,
    QuotaExceededError,
    QuotaUsedUpError,
    UnauthorizedError,
)
from barco.log import OfRequest
from barco.model.access import EVERYBODY, User
from barco.model.bearer import challenges, shown_in
from barco.workers.http.base.audit import HEADER as AUDIT_HEADER
from barco.workers.http.base.audit import REFUSALS, Audit, given_in
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_parameters
from barco.workers.http.base.lately import Lately, age_max
from barco.workers.http.base.messages import (
    KEPT,
    KEPT_CHARACTERS_MAX,
    Call,
    Request,
    Response,
    Soon,
    parse_query,
    problem_response,
)
from barco.workers.http.base.needs import Need
from barco.workers.http.base.routes import Route, Router
from barco.workers.http.checking.desk import Checking
from barco.workers.http.consuming.letters import Letters
from barco.workers.http.consuming.readers import ReaderNotes
from barco.workers.http.handlers.console import Console
from barco.workers.http.handlers.consume import Consume
from barco.workers.http.handlers.groups import GroupRoutes
from barco.workers.http.handlers.growing import Growing
from barco.workers.http.handlers.listen import Listen
from barco.workers.http.handlers.queues import QueueRoutes
from barco.workers.http.handlers.read import Read
from barco.workers.http.handlers.status import Status
from barco.workers.http.handlers.topics import Topics
from barco.workers.http.handlers.users import Users
from barco.workers.http.handlers.writes import Writes
from barco.workers.http.needs import NEEDS
from barco.workers.http.schemas.handlers import SchemaRoutes
from barco.workers.http.shippers.elastic import Elastic
from barco.workers.http.shippers.grafana import Grafana
from barco.workers.http.shippers.otlp import Otlp
from barco.workers.http.shippers.splunk import Splunk
from barco.workers.http.table import ROUTES
from barco.workers.operations.service import ShardService
from barco.workers.seams import SiblingsLike, SupervisorLike
from barco.workers.tracing.traces import Traces

Handler = Callable[[Request], Awaitable[Response]]
AtOnce = Callable[[Request], Response | Soon | None]

AT_ONCE = "/v1/queue/"
"""Some requests of these paths may be answered at once."""

_ALWAYS = {f"status.{name}" for name in ("status", "ready", "brokers", "metrics", "openapi")}
_ALWAYS |= {f"console.{name}" for name in ("home", "page", "file")}
"""Answered before the shard is open as well."""
_ADMINISTRATION = (
    *("/v1/topics", "/v1/groups", "/v1/topology", "/v1/users"),
    *("/registry/subjects", "/registry/config", "/registry/mode"),
)
"""What is changed there is told in the log."""

_GIVEN_UP = "/dead/drop"
"""And what is given up."""

OVER_QUOTA = (QuotaExceededError, QuotaUsedUpError)

NOBODY = User("")
"""Whoever asks for what is open: nothing is granted to nobody."""

LISTENED = "/v1/topic/{topic}/events"

_log = logging.getLogger("barco.http")


def is_open(path: str) -> bool:
    """Whether nobody has to show anything for a path; `access.c` has the same list."""
    return path in ("/ready", "/", "/console") or path.startswith("/console/")


def _administers(method: str, path: str) -> bool:
    """Whether a call changes what many depend on."""
    if method == "POST" and path.startswith("/registry"):
        return path.endswith("/versions")  # Else it is a question, with a schema in its body.
    return method != "GET" and (path.startswith(_ADMINISTRATION) or path.endswith(_GIVEN_UP))


def _identified(
    headers: Sequence[tuple[bytes, bytes]], response: Response, request: str
) -> Response:
    """The answer that names its request. What a client has given the core says by itself."""
    if not request or given_in(headers):
        return response
    return replace(response, headers=(*response.headers, (AUDIT_HEADER, request)))


def _unauthorized(headers: Sequence[tuple[bytes, bytes]]) -> UnauthorizedError:
    error = UnauthorizedError(
        "Show a user's token: Authorization: Bearer TOKEN, or Basic with the user's name and the "
        "token as the password."
    )
    error.challenges = challenges(headers)
    return error


class App:
    """Everything over HTTP that is not a produce."""

    def __init__(
        self, service: ShardService, *, siblings: SiblingsLike, supervisor: SupervisorLike
    ) -> None:
        self._context = Context(service, siblings=siblings, supervisor=supervisor)
        self._router = Router(ROUTES)
        self._over_quota = 0
        self.traces: Traces | None = None
        """Who notes how long requests take that are traced; None: nobody asks for it."""
        self._lately = Lately()
        self.audit = Audit(service.wall_us)
        """What is told of who was refused."""
        self._readers = ReaderNotes()
        service.extend({"audited": self._audit, "readers": self._who_reads})
        status, read = Status(self._context, ROUTES), Read(self._context, self._readers)
        self.listen = Listen(self._context, read)
        """Who listens; the core's part of it is given later."""
        self.listen.still = self._may_hear
        self.checking = Checking(self._context)
        """Produces of topics whose values are checked."""
        topics = Topics(self._context)
        queues = QueueRoutes(self._context, topics)
        parts = {
            "status": status,
            "console": Console(self._context, status),
            "consume": Consume(self._context, topics.graveyard),
            "read": read,
            "listen": self.listen,
            "topics": topics,
            "queues": queues,
            "groups": GroupRoutes(self._context),
            "growing": Growing(self._context),
            "letters": Letters(self._context, self.checking, read.ask),
            "schemas": SchemaRoutes(self._context),
            "writes": Writes(self._context, self.checking),
            "users": Users(self._context),
            "elastic": Elastic(self._context, self.checking),
            "splunk": Splunk(self._context, self.checking),
            "otlp": Otlp(self._context, self.checking),
            "grafana": Grafana(self._context, self.checking),
        }
        self._at_once: dict[str, AtOnce] = {
            "queues.lease": queues.lease_at_once,
            "queues.ack": queues.ack_at_once,
        }
        self._kept: dict[
            tuple[object, ...], tuple[AtOnce, Mapping[str, Sequence[str]], Mapping[str, str]]
        ] = {}
        """What was understood of method, path and query, of what is answered at once."""
        self._handlers: dict[str, Handler] = {}
        for route in ROUTES:
            if route.handler is not None:
                part, _, method = route.handler.partition(".")
                self._handlers[route.handler] = getattr(parts[part], method)

    async def _audit(self, args: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What was told of late; what only the core knows yet comes within a second."""
        return self.audit.lately()

    async def _who_reads(self, args: Mapping[str, Any]) -> list[dict[str, Any]]:
        return self._readers.told()

    def count_in(self) -> None:
        """Whom this app has refused among the metrics, from now on; the core counts its own."""
        service = self._context.service
        more = service.more_stats
        service.more_stats = lambda: (
            more() | {"over_quota_kept": self._over_quota} | self.checking.stats()
        )

    def shed_by(self, shed: Callable[[int], object]) -> None:
        """Where answers wait for too long, `shed` closes who reads nothing, for so many bytes."""
        self._context.memory.shed = shed

    def users_changed(self) -> None:
        """Those who listen may not be granted any more what they hear."""
        self.listen.users_changed()

    def _may_hear(self, request: Request) -> bool:
        """Whether who has asked may hear that now."""
        if (user := self._who(request.path, request.headers)) is None:
            return False
        try:
            NEEDS["GET", LISTENED].check(replace(request, user=user))
        except BarcoError:
            return False
        return True

    def open(self) -> None:
        """The shard is open: answer everything."""
        self._context.ready = True

    async def change_target(self, args: Mapping[str, Any]) -> Any:
        """As the supervisor asks for it, who is no user: by whoever keeps the target."""
        return await self._context.change_slice(0, "target_change", args)

    def close(self, reason: str) -> None:
        """Not ready (any more), and why."""
        self._context.ready = False
        self._context.reason = reason

    def interruptible(self, task: asyncio.Future[Any]) -> bool:
        """Whether the task, which is in `handle`, waits for events and changes nothing else."""
        return self._context.interruptible(task)

    async def handle(self, call: Call) -> Response:
        """The response to a request; errors of all kinds become one. Only a cancel is raised."""
        traced = None if self.traces is None else self.traces.begin(call.headers)
        with OfRequest(given_in(call.headers)) as asked:
            response = await self._handled(call, asked)
        if traced is not None and self.traces is not None:
            named = self._named(call.method, call.path)
            self.traces.end(traced, call.method, named, response.status)
        return response

    async def _handled(self, call: Call, asked: OfRequest) -> Response:
        why = ""
        method, path, headers = call.method, call.path, call.headers
        try:
            response = await self._dispatch(call)
            self._over_quota += sum(isinstance(each.error, OVER_QUOTA) for each in response.refused)
        except BarcoError as error:
            if error.status == 500:
                asked.id = asked.id or self.audit.next_id()
                _log.error("%s %.200r: %s", method, path, error)
            if isinstance(error, OVER_QUOTA):
                self._over_quota += 1
            response, why = problem_response(error), error.detail
        except Exception:  # noqa: BLE001 - one request's bug must not end the worker.
            asked.id = asked.id or self.audit.next_id()
            _log.exception("%s %.200r failed", method, path)
            response = problem_response(BrokerError("The broker failed; its log says how."))
        if self._context.service.access.required:
            response = self._audited(call, response, why, asked.id)
        elif asked.id:
            response = _identified(headers, response, asked.id)
        return response

    def _named(self, method: str, path: str) -> str:
        """The route of a path, as spans have it: not what a client has put into it."""
        try:
            route, _, _ = self._router.find(method, path)
        except BarcoError:
            return "none"
        return route.path if route is not None else "none"

    def _audited(self, call: Call, response: Response, why: str, request: str) -> Response:
        """The answer with the id of its request, where that is in a line of the log. request: it
        has that one already; the core has one for what is refused without a line."""
        method, path, headers = call.method, call.path, call.headers
        administers = _administers(method, path)
        if response.status not in REFUSALS and not administers and not response.refused:
            return _identified(headers, response, request)
        request, access = request or self.audit.next_id(), self._context.service.access
        user = access.who(*shown_in(path, headers)) if access.is_heard else None
        for each in response.refused:
            error = each.error
            part: dict[str, str | int] = {"topic": each.topic, "events": each.events}
            self.audit.refused(request, user, (method, path), error.status, error.detail, part)
        if response.status in REFUSALS:
            self.audit.refused(request, user, (method, path), response.status, why)
        elif administers:
            self.audit.administered(request, user, (method, path), response.status)
        return _identified(headers, response, request)

    def at_once(self, call: Call) -> Response | Soon | None:
        """The response to a request that waits for nothing but a write, and so needs no task;
        None: `handle` it, which also says what is wrong, and how long it took."""
        if not call.path.startswith(AT_ONCE) or self.traces is not None:
            return None
        try:
            if self._is_open_to_all and (kept := self._kept.get(call[1:4])) is not None:
                number, method, path, query, headers, body = call
                begin, parsed, variables = kept
                return begin(
                    Request(
                        method, path, parsed, headers, body, variables, EVERYBODY, number, query
                    )
                )
            understood = self._understood(call)
            if isinstance(understood, Response):
                return None
            route, _, request = understood
            handler = self._at_once.get(route.handler or "")
            if handler is not None:
                self._keep(call, handler, request)
            return None if handler is None else handler(request)
        except BarcoError:
            return None
        except Exception:  # noqa: BLE001 - as in `handle`.
            asked = given_in(call.headers) or self.audit.next_id()
            told = {"request": asked}
            _log.exception("%s %.200r failed", call.method, call.path, extra=told)
            response = problem_response(BrokerError("The broker failed; its log says how."))
            response = _identified(call.headers, response, asked)
        if self._context.service.access.required:
            response = self._audited(call, response, "", given_in(call.headers))
        return response

    @property
    def _is_open_to_all(self) -> bool:
        """Whether whoever asks for what is known is answered, whoever it is."""
        return self._context.ready and not self._context.service.access.required

    def _keep(self, call: Call, handler: AtOnce, request: Request) -> None:
        """Who consumes asks for the same all the time: what is understood of an address, apart from
        who asks, is not found out again."""
        if len(call.path) + len(call.query) > KEPT_CHARACTERS_MAX or not self._is_open_to_all:
            return
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[call[1:4]] = handler, request.query, request.variables

    async def _dispatch(self, call: Call) -> Response:
        understood = self._understood(call)
        if isinstance(understood, Response):
            return understood
        route, need, request = understood
        handler = self._handlers[route.handler or ""]
        if route.shared and (age := age_max(request)):
            response = await self._lately.answer(
                (call.path, call.query), age, lambda: handler(request)
            )
        else:
            response = await handler(request)
        return await self._still(need, request, response)

    def _understood(self, call: Call) -> tuple[Route, Need, Request] | Response:
        """A request that may be made, and by whom; or the answer to it."""
        number, method, path, query, headers, body = call
        opened = is_open(path)
        user = None if opened else self._who(path, headers)
        if user is None and not opened:
            raise _unauthorized(headers)
        route, variables, allowed = self._router.find(method, path)
        if route is None:
            return Response(204, b"", (("Allow", ", ".join(allowed)),))
        assert route.handler is not None
        need = NEEDS[route.method, route.path]
        if not self._context.ready and route.handler not in _ALWAYS:
            raise NotReadyError(self._context.reason)
        if user is None:
            if not need.open:
                raise _unauthorized(headers)
            user = NOBODY
        parsed = parse_query(query)
        request = Request(method, path, parsed, headers, body, variables, user, number, query)
        check_parameters(route, request)
        need.check(request)
        return route, need, request

    def _who(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> User | None:
        """Who asks; None: that is not shown, or not so."""
        access = self._context.service.access
        return EVERYBODY if not access.required else access.who(*shown_in(path, headers))

    async def _still(self, need: Need, request: Request, response: Response) -> Response:
        """The answer, unless it was long in coming, and less is granted now to whoever asked."""
        access = self._context.service.access
        if not access.required or need.open or need.stores or response.status != 200:
            return response
        now = self._who(request.path, request.headers)
        if now == request.user:
            return response
        if response.undo is not None:
            await response.undo()
        if now is None:
            raise _unauthorized(request.headers)
        raise NotReadyError("What this user may do has changed meanwhile: ask again.")
