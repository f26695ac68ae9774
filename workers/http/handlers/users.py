"""Who may do what: looked at, and changed, where slice 0 is led."""

import re
from typing import Any

from barco.errors import BarcoError, NotReadyError, RequestError
from barco.model.access import FIRST_QUOTAS, QUOTAS, Quota
from barco.model.ranges import process_of
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import Request, Response, json_response
from barco.workers.shard.access import unpacked

AUDIT_MAX = 1000
_TIMEOUT_S = 1.0

_FIELDS = ("sha256", "keep", "grants", *QUOTAS)
_NEEDED = f"The body is a JSON object with one of sha256, grants, {', '.join(QUOTAS)}."
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Users:
    """Handlers of /v1/users."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def me(self, request: Request) -> Response:
        """Who asks, and what was granted; where nobody needs a token everything is."""
        user = request.user
        grants = [] if user.is_everybody else list(map(str, user.grants))
        return json_response({"name": user.name, "everybody": user.is_everybody, "grants": grants})

    async def every(self, request: Request) -> Response:
        """All of them."""
        context = self._context
        try:
            table = unpacked(await context.ask(context.owner(0), "access", {}))
        except (ValueError, TypeError):
            raise NotReadyError("Who leads slice 0 has said what is no table.") from None
        users = [table.users[name].described() for name in sorted(table.users)]
        return json_response({"version": table.version, "users": users})

    async def audit(self, request: Request) -> Response:
        """Who was refused and who administered, of late, at every process that answers."""
        most = request.number("max", default=100, most=AUDIT_MAX)
        context = self._context
        answers = await context.siblings.broadcast("audited", context.every_process(), _TIMEOUT_S)
        lines, silent = [], 0
        for peer, told in answers.items():
            if isinstance(told, BarcoError):
                silent += 1
                continue
            lines += [{"broker": process_of(peer)[0], **each} for each in told]
        lines.sort(key=lambda each: -int(each["at"]))
        audited = context.service.access.required
        return json_response({"audited": audited, "silent": silent, "lines": lines[:most]})

    async def put(self, request: Request) -> Response:
        """Add one, or change one."""
        name, args = request.variables["user"], _asked(request.json())
        bounds = args.keys() & list(QUOTAS.values())[FIRST_QUOTAS:]
        op = "access_bound" if bounds else "access_set"
        created = await self._context.change_slice(0, op, {"name": name, **args})
        return json_response({"name": name, "created": bool(created)}, 201 if created else 200)

    async def delete(self, request: Request) -> Response:
        """Remove one."""
        args = {"name": request.variables["user"]}
        await self._context.change_slice(0, "access_set", args)
        return Response(204)


def _asked(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or not given:
        raise RequestError(_NEEDED)
    check_names("field", given, _FIELDS)
    args: dict[str, Any] = {}
    if "sha256" in given:
        digest = given["sha256"]
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise RequestError("sha256 is 64 hexadecimal digits, lower case.")
        args["hash"] = bytes.fromhex(digest)
    if not isinstance(given.get("keep", False), bool) or ("keep" in given and not args):
        raise RequestError("keep is true or false, and comes with sha256.")
    args["keep"] = given.get("keep", False)
    if "grants" in given:
        if not isinstance(given["grants"], list):
            raise RequestError("grants is a list of texts.")
        args["grants"] = given["grants"]
    Quota.checked(*(given.get(name, 0) for name in QUOTAS))
    args |= {inside: given[name] for name, inside in QUOTAS.items() if name in given}
    if args.keys() == {"keep"}:
        raise RequestError(_NEEDED)
    return args
