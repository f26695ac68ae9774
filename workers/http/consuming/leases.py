"""What a lease asks for."""

from typing import Any

from msgspec import Struct

from barco import limits
from barco.errors import RequestError
from barco.model.queues import LEASE_MS_MAX, LEASE_MS_MIN, LEASED_DEFAULT, LEASED_MAX
from barco.workers.http.base.messages import (
    JSON,
    KEPT,
    KEPT_CHARACTERS_MAX,
    NDJSON,
    Request,
    check_group,
    check_topic,
    choose,
)
from barco.workers.http.base.render import CHUNKS

QUEUE_FORMATS = (NDJSON, JSON, CHUNKS)


class LeaseAsked(Struct, frozen=True):
    """By one request."""

    kind: str
    """The format of the answer."""
    group: str
    topic: str
    most: int
    """Events."""
    lease_ms: int
    """0: as the queue says."""
    wait_ms: int
    budget: int
    """Bytes as stored."""

    @classmethod
    def of(cls, request: Request) -> "LeaseAsked":
        """RequestError, NotAcceptableError: it asks for something else."""
        kind = choose(request.header("accept"), QUEUE_FORMATS)
        group, topic = queue_of(request)
        most = request.number("max", default=LEASED_DEFAULT, most=LEASED_MAX)
        if most < 1:
            raise RequestError("max is at least 1.")
        lease_ms = request.number("leaseMs", default=0, most=LEASE_MS_MAX)
        if request.value("leaseMs") is not None:
            check_lease_ms(lease_ms)
        wait_ms = request.number("waitMs", default=0, most=limits.POLL_WAIT_MS_MAX)
        budget = request.number(
            "maxBytes", default=limits.POLL_BYTES_DEFAULT, most=limits.POLL_BYTES_MAX
        )
        return cls(kind, group, topic, most, lease_ms, wait_ms, max(1, budget))

    @property
    def args(self) -> dict[str, Any]:
        """For the leaders."""
        args: dict[str, Any] = {"group": self.group, "topic": self.topic, "most": self.most}
        return args | ({"leaseMs": self.lease_ms} if self.lease_ms else {})


class LeasesAsked:
    """What was read lately is remembered: who leases says the same all the time."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], LeaseAsked] = {}

    def of(self, request: Request) -> LeaseAsked:
        """As `LeaseAsked.of`."""
        key = (request.path, request.asked, *request.headers)
        found = self._kept.get(key)
        if found is None:
            found = LeaseAsked.of(request)
            said = sum(len(name) + len(value) for name, value in request.headers)
            if len(request.path) + len(request.asked) + said <= KEPT_CHARACTERS_MAX:
                if len(self._kept) >= KEPT:
                    self._kept.clear()
                self._kept[key] = found
        return found


def check_lease_ms(given: int) -> int:
    """What was asked for, if a lease may be so short."""
    if given < LEASE_MS_MIN:
        raise RequestError(f"leaseMs is at least {LEASE_MS_MIN}.")
    return given


def queue_of(request: Request) -> tuple[str, str]:
    """The group and the topic that a request is about."""
    return check_group(request.variables["group"]), check_topic(request.required("topic"))
