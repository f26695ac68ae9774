"""The names that a request may use. Another one is refused, with the nearest that there is.

A misspelt name that is passed over is a setting that nobody has: `sessionms=5000` would be a
consumer of 30 s, `partitonKey=` events in no order. So is a body where there is none: of
`{"maxDeliveries": 3}` a queue that is made by parameters would know nothing. Headers are different:
anybody on the way may add one, so unknown ones are passed over.
"""

import difflib
from collections.abc import Iterable, Sequence

from barco.errors import RequestError, UnknownNameError
from barco.workers.http.base.messages import Request
from barco.workers.http.base.routes import Route

MISSING = "Barco-Missing-Topics"

_WITH_BODY = ("POST", "PUT")
"""Methods whose body somebody may have written by hand; libraries send one with others, too."""

SHOWN_CHARACTERS_MAX = 100
"""Of a name that is not known."""


def check_parameters(route: Route, request: Request) -> None:
    """UnknownNameError if the query has a name that the route does not take, RequestError if there
    is a body and it takes none."""
    if route.lenient:
        return
    if not request.query.keys() <= route.known:
        check_names("parameter", request.query, route.known, _shown(route))
    if route.method in _WITH_BODY and not route.body and request.body.strip():
        named = ", ".join(sorted(_shown(route)))
        hint = f"its parameters, in the address: {named}." if named else "nor parameters."
        raise RequestError(f"{request.method} {route.path} takes no body; {hint}")


def _shown(route: Route) -> list[str]:
    return [each.name for each in route.parameters if not each.header]


def check_names(
    kind: str, given: Iterable[str], known: Iterable[str], shown: Iterable[str] | None = None
) -> None:
    """UnknownNameError for the first name that is not known; `shown`: those that are proposed."""
    known = set(known)
    for name in given:
        if name not in known:
            raise _unknown(kind, name, list(known if shown is None else shown))


def _unknown(kind: str, name: str, known: list[str]) -> UnknownNameError:
    plain = {_plain(each): each for each in known}
    short = name[:SHOWN_CHARACTERS_MAX]
    near = difflib.get_close_matches(_plain(short), plain, n=1, cutoff=0.6)
    if near:
        hint = f"did you mean {plain[near[0]]}?"
    else:
        hint = f"there are {', '.join(sorted(known))}." if known else "none is taken here."
    return UnknownNameError(f"There is no {kind} {short!r}: {hint}")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def missing_told(topics: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The header that names topics which are not there: they come with their first event, or are
    misspelt, and who waits for them waits for nothing."""
    return ((MISSING, ",".join(topics)),) if topics else ()
