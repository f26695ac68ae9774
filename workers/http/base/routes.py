"""One table of everything that the broker answers: the router and /openapi.json read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from msgspec import Struct

from barco.errors import MethodNotAllowedError, NotFoundError
from barco.workers.http.base.messages import percent_decode

PATH_SEGMENTS_MAX = 16

FOUND_KEPT, FOUND_CHARACTERS_MAX = 512, 256
"""Paths whose route is remembered, the last that were asked for; and of how many characters at
most. Who consumes asks for one path all the time, and a search of the table costs as much as all
else that is done to understand a request."""

Found = tuple["Route | None", Mapping[str, str], Sequence[str]]
"""The route, the variable parts of the path, the allowed methods; the route is None for OPTIONS."""


class Parameter(Struct, frozen=True):
    """A query parameter, for the documentation."""

    name: str
    description: str
    kind: str = "string"
    required: bool = False
    repeated: bool = False
    header: bool = False
    """A request header instead."""
    values: tuple[str, ...] = ()
    """All that are understood."""
    older: tuple[str, ...] = ()
    """Other names of it, which are taken as well and not documented."""


RECENT = Parameter(
    "Cache-Control",
    "max-age=2: an answer that somebody else was given in the last 2 s will do (5 s at most).",
    header=True,
)
"""Of routes whose answer is `shared`."""


class Told(Struct, frozen=True):
    """A header of answers, for the documentation."""

    name: str
    description: str
    statuses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `handler` names a method of the app; None: the C core answers."""

    method: str
    path: str
    handler: str | None
    summary: str
    tag: str
    parameters: tuple[Parameter, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    """The request body by media type: a schema each."""
    answers: Mapping[int, str] = field(default_factory=dict)
    tells: tuple[Told, ...] = ()
    """Headers of the answers that have a meaning of their own."""
    kinds: tuple[str, ...] = ("application/json",)
    """Media types of the 200 answer."""
    shape: str = ""
    """The schema of the JSON among them: a name of `openapi.SCHEMAS`, with a small letter."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """The schema itself, of a 200 answer whose kinds are all JSON."""
    refused: Mapping[str, Any] = field(default_factory=dict)
    """Of what is wrong, where that is told by another document than everywhere."""
    shared: bool = False
    """The answer is the same for all who may ask, so who sends `max-age` may have another one's."""
    lenient: bool = False
    """Parameters that are not known are passed over."""
    known: frozenset[str] = field(init=False, compare=False, repr=False)
    """Names of all parameters that it takes in the query."""

    def __post_init__(self) -> None:
        named = [each for each in self.parameters if not each.header]
        known = frozenset(name for each in named for name in (each.name, *each.older))
        object.__setattr__(self, "known", known)


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._paths: dict[int, list[tuple[tuple[str, ...], dict[str, Route]]]] = {}
        """By the number of segments."""
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, {})[route.method] = route
        for path, methods in by_path.items():
            template = tuple(path.split("/")[1:])
            self._paths.setdefault(len(template), []).append((template, methods))
        self._kept = lru_cache(FOUND_KEPT)(self._find)

    def find(self, method: str, path: str) -> Found:
        """What answers a request. It is shared: nobody changes it.

        Raises 404 for an unknown path and 405 for a method that it does not have.
        """
        if len(path) + len(method) > FOUND_CHARACTERS_MAX:
            return self._find(method, path)
        return self._kept(method, path)

    def _find(self, method: str, path: str) -> Found:
        segments = path.split("/", PATH_SEGMENTS_MAX + 1)[1:]
        for template, methods in self._paths.get(len(segments), ()):
            variables = _match(template, segments)
            if variables is None:
                continue
            allowed = sorted(methods | ({"HEAD": 0} if "GET" in methods else {}) | {"OPTIONS": 0})
            route = methods.get("GET" if method == "HEAD" else method)
            if route is not None and route.handler is not None:
                return route, variables, allowed
            if method == "OPTIONS":
                return None, variables, allowed
            raise MethodNotAllowedError(f"The path takes {', '.join(allowed)}.", allow=allowed)
        raise NotFoundError("There is nothing at this path; /openapi.json lists what there is.")


def _match(template: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    raw = {}
    for expected, given in zip(template, segments, strict=True):
        if expected.startswith("{"):
            raw[expected[1:-1]] = given
        elif expected != given:
            return None
    # Decoded only after the path has matched: an escaped slash is part of a name, not of the path.
    return {name: percent_decode(value, plus_is_space=False) for name, value in raw.items()}
