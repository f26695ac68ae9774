"""Who was refused, and who has administered: lines of the log, each with an id that the answer has.

Never a token, nor what is known of it. A flood of refusals must not fill a disk, nor hide what
another user was refused: of each second some of each user's are told, then how many were not. What
the C core refuses it keeps, by the same bounds, until this takes it, once a second.
"""

import logging
import re
import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from barco.model.access import TOKEN_PREFIX, User

KEPT, KEPT_OF_ONE = 100, 20
"""Refusals told in a second, of all and of one user; of who shows no token as many."""

LATELY = 500
"""Lines that a process keeps to be shown: half a MiB at most."""

COUNTED = 20
"""Users whose further refusals are told by name, of a second."""

SHOWN_CHARACTERS_MAX = 200
HEADER = "Barco-Request-Id"

REFUSALS = (401, 403, 429)
"""Status of what somebody has no right to, or too much of."""

CoreRefusal: TypeAlias = tuple[str, int, int | None, int, str, str, str, str]
"""Id, time in µs, the user's number, status, the problem's type, method, path, address."""

CoreRefusals: TypeAlias = tuple[Sequence[CoreRefusal], Sequence[tuple[int | None, int]]]
"""As `Reactor.refusals` gives them, and how many more by the user's number."""

GIVEN = b":request"
"""As the core hands over what a client calls its request: no client can send such a field."""

_TOKEN = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{20,}}")
"""Or what is left of one that was cut: of less, too much is missing."""

log = logging.getLogger("barco.audit")


def given_in(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """What the client of a request calls it, as the core has found it; "": nothing."""
    for name, value in reversed(headers):  # The core puts it behind the others.
        if name == GIVEN:
            return bytes(value).decode("ascii")
        if name[:1] != b":":
            break
    return ""


class Audit:
    """Of one process."""

    def __init__(self, wall_us: Callable[[], int]) -> None:
        self._wall_us = wall_us
        self._lately: deque[dict[str, Any]] = deque(maxlen=LATELY)
        self.users: Sequence[str] = ()
        """By their numbers, as the core has them."""
        self._life = secrets.token_hex(6)
        self._requests = 0
        self._told: Counter[str] = Counter()
        self._more: Counter[str] = Counter()

    def next_id(self) -> str:
        """Of one request: no other process, also none of an earlier life, has it."""
        self._requests += 1
        return f"{self._life}-{self._requests:x}"

    def refused(
        self,
        request: str,
        user: User | None,
        call: tuple[str, str],
        status: int,
        why: str,
        part: Mapping[str, str | int] | None = None,
    ) -> None:
        """It had no right to that. user: None where it was not shown who asks; part: what was
        refused of it, if it was not all."""
        name = "" if user is None else user.name
        if self._told[name] >= KEPT_OF_ONE or self._told.total() >= KEPT:
            self._more[name] += 1
            return
        self._told[name] += 1
        fields = _fields(request, name, call, status) | {"why": _plain(why)}
        for key, value in (part or {}).items():
            fields[key] = _plain(value) if isinstance(value, str) else value
        log.warning("refused", extra=fields)
        self._keep("refused", fields)

    def administered(
        self, request: str, user: User | None, call: tuple[str, str], status: int
    ) -> None:
        """It has changed something that is not events, or has tried to."""
        name = "" if user is None else user.name
        fields = _fields(request, name, call, status)
        log.info("administered", extra=fields)
        self._keep("administered", fields)

    def lately(self) -> list[dict[str, Any]]:
        """The last lines of this process that the log has, but for those that only count."""
        return list(self._lately)

    def _keep(self, what: str, fields: Mapping[str, Any], at_us: int | None = None) -> None:
        at = self._wall_us() if at_us is None else at_us
        self._lately.append({"at": at, "what": what, **fields})

    def tell(self, core: CoreRefusals) -> None:
        """Once a second: what the core has refused since, and how many were not told."""
        kept, more = core
        for request, at_us, number, status, why, method, path, address in kept:
            fields = _fields(request, self._name(number), (method, path), status)
            fields |= {"why": why, "from": address}
            log.warning("refused", extra=fields | {"at": _at(at_us)})
            self._keep("refused", fields, at_us)
        for number, count in more:
            self._more[self._name(number)] += count
        ordered = self._more.most_common()
        for name, count in ordered[:COUNTED]:
            whose = name or "who showed no user's token"
            told = {"user": name, "left_out": count}
            log.warning("%d more of %s were refused in the last second", count, whose, extra=told)
        if rest := ordered[COUNTED:]:
            count = sum(count for _, count in rest)
            told = {"users": len(rest), "left_out": count}
            log.warning("%d more of others were refused in the last second", count, extra=told)
        self._told.clear()
        self._more.clear()

    def _name(self, number: int | None) -> str:
        assert number is None or number < len(self.users), "the core has the same table"
        return "" if number is None else self.users[number]


def _at(time_us: int) -> str:
    at = datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _plain(text: str) -> str:
    """Without a token that is there by mistake."""
    return _TOKEN.sub(f"{TOKEN_PREFIX}...", text)


def _fields(request: str, user: str, call: tuple[str, str], status: int) -> dict[str, str | int]:
    method, path = call
    return {
        "request": request,
        "user": user,
        "method": method[:SHOWN_CHARACTERS_MAX],
        "path": _plain(path[:SHOWN_CHARACTERS_MAX]),
        "status": status,
    }
