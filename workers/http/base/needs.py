"""What a request needs: a verb, and what it touches. A route without one does nothing."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from barco.errors import ForbiddenError
from barco.model.access import EVERY, User
from barco.workers.http.base.messages import Request

Object = tuple[str | None, str | None]
"""Topic and group; None: no such one is touched."""


def nothing(request: Request) -> Iterable[Object]:
    """It touches neither topics nor groups."""
    return ((None, None),)


class Need(Struct, frozen=True):
    """Any of these verbs, on each of these objects."""

    verbs: tuple[str, ...]
    """None: whoever shows that they are somebody."""
    objects: Callable[[Request], Iterable[Object]] = nothing
    open: bool = False
    """Nobody has to show anything."""
    stores: bool = False
    """The answer says what is stored, as it was granted when the body was there, no more."""

    def check(self, request: Request) -> None:
        """ForbiddenError for what was not granted; RequestError where it can not be told what the
        request touches."""
        if self.verbs and not request.user.is_everybody:
            allow(request.user, self.verbs, self.objects(request))


def allow(user: User, verbs: tuple[str, ...], objects: Iterable[Object]) -> None:
    """ForbiddenError for the first object on which the user has none of the verbs."""
    for topic, group in objects:
        if not any(user.may(verb, topic, group) for verb in verbs):
            raise _forbidden(user, verbs, topic, group)


def _forbidden(
    user: User, verbs: tuple[str, ...], topic: str | None, group: str | None
) -> ForbiddenError:
    what = [f"topic {topic[:127]!a}" for topic in (topic,) if topic not in (None, EVERY)]
    what += [f"group {group[:128]!a}" for group in (group,) if group is not None]
    on = f" on {' and '.join(what)}" if what else ""
    fields = {"verb": verbs[0]}
    fields |= {"topic": topic[:127]} if topic is not None else {}
    fields |= {"group": group[:128]} if group is not None else {}
    return ForbiddenError(f"User {user.name} was not granted {' or '.join(verbs)}{on}.", **fields)
