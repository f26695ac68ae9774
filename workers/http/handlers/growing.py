"""How large the cluster shall be: the target, changed by whoever leads slice 0."""

from collections.abc import Mapping
from typing import Any

from barco.errors import RequestError
from barco.limits import BROKERS_MAX
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import Request, Response, json_response, parse_number
from barco.workers.http.handlers.ring import described_target

_NAMES = ("cluster", "version", "brokers")
_OF_BROKER = ("ordinal", "workers", "host", "diskUuid")
_NUMBERS_MAX = {"ordinal": BROKERS_MAX - 1, "workers": 2**16, "version": 2**63 - 1}


class Growing:
    """Handler of PUT /v1/topology."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def put(self, request: Request) -> Response:
        """Compare and set: the brokers of which the cluster shall consist. The same again is no
        change, so a call whose answer was lost is repeated."""
        args = _asked(request.json())
        packed = await self._context.change_slice(0, "target_change", args)
        return json_response(described_target(self._context, packed))

    async def drains(self, request: Request) -> Response:
        """What brokers that leave still hold alone, as whoever keeps the target sees it."""
        given = request.value("without") or ""
        without = [parse_number("without", each) for each in given.split(",") if each]
        if len(without) > BROKERS_MAX:
            raise RequestError(f"without names at most {BROKERS_MAX} brokers.")
        return json_response(await drains(self._context, {"without": without}))


async def drains(context: Context, args: Mapping[str, Any], timeout: float = 30.0) -> Any:
    """As whoever leads slice 0 answers."""
    return await context.ask(context.owner(0), "drains", args, timeout)


def _asked(given: Any) -> dict[str, Any]:
    """The body, checked."""
    if not isinstance(given, dict):
        raise RequestError("The body is to be a JSON object.")
    check_names("field", given, set(_NAMES), _NAMES)
    if missing := [name for name in _NAMES if name not in given]:
        raise RequestError(f"The body has no {', '.join(missing)}.")
    if not isinstance(given["cluster"], str) or not isinstance(given["brokers"], list):
        raise RequestError("cluster is a text, brokers a list.")
    brokers = [_broker(each) for each in given["brokers"][: BROKERS_MAX + 1]]
    return {"cluster": given["cluster"], "seen": _number(given, "version"), "brokers": brokers}


def _broker(given: Any) -> list[Any]:
    if not isinstance(given, dict):
        raise RequestError("Each of brokers is a JSON object.")
    check_names("field of a broker", given, set(_OF_BROKER), _OF_BROKER)
    texts = [given.get(name, "") for name in ("host", "diskUuid")]
    for text, most in zip(texts, (255, 32), strict=True):
        fits = isinstance(text, str) and len(text) <= most
        if not fits or not (text.isascii() and text.isprintable()):
            raise RequestError(f"host and diskUuid are ASCII texts of at most {most} characters.")
    return [_number(given, "ordinal"), _number(given, "workers"), *texts]


def _number(given: dict[str, Any], name: str) -> int:
    value, most = given.get(name), _NUMBERS_MAX[name]
    if type(value) is not int or not 0 <= value <= most:
        raise RequestError(f"{name} is a whole number from 0 to {most}.")
    return value
