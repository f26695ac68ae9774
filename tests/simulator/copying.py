"""A copy of a frozen world, ten times as fast as copy.deepcopy: it knows what is immutable."""

from collections import OrderedDict, deque
from copy import copy
from typing import Any

from msgspec import Struct

from barco.cluster.replica.peers import Peer
from barco.cluster.replica.proposer import Proposal
from barco.cluster.replica.replica import Replica
from barco.cluster.state.held import Held, Leading

from .broker import Broker
from .disk import Disk
from .oracle import Oracle

_FLAT = frozenset((dict, list, set, deque, OrderedDict))


def shallow(value: Any) -> Any:
    """A new object whose containers are new; what they contain is the same."""
    kind = type(value)
    new = kind.__new__(kind)
    for name, each in vars(value).items():
        new.__dict__[name] = each.copy() if each.__class__ in _FLAT else each
    return new


def _slots(value: Any) -> Any:
    kind = type(value)
    new = copy(value) if isinstance(value, Struct) else kind.__new__(kind)
    for name in kind.__slots__:
        each = getattr(value, name)
        setattr(new, name, each.copy() if each.__class__ in _FLAT else each)
    return new


def _nested(value: dict[Any, Any]) -> dict[Any, Any]:
    return {k: _nested(v) if isinstance(v, dict) else v for k, v in value.items()}


def _held(value: Held) -> Held:
    new: Held = _slots(value)
    if isinstance(new.leading, Leading):
        new.leading = _slots(new.leading)
    return new


def _replica(value: Replica) -> Replica:
    new: Replica = shallow(value)
    new._held = {gid: _held(held) for gid, held in value._held.items()}
    new._current = {t: new._held[h.generation.gid] for t, h in value._current.items()}
    new._lacking = {gid: new._held[gid] for gid in value._lacking}
    new._peers = {o: _copy_of(peer) for o, peer in value._peers.items()}
    new._proposals = {gid: _copy_of(each) for gid, each in value._proposals.items()}
    return new


def _copy_of(value: Peer | Proposal) -> Any:
    return _slots(value)


def _disk(value: Disk) -> Disk:
    new: Disk = shallow(value)
    new.files = value.files.copy()
    new.logs = {gid: log.copy() for gid, log in value.logs.items()}
    new.in_flight = {gid: each.copy() for gid, each in value.in_flight.items()}
    new.done = {gid: each.copy() for gid, each in value.done.items() if each}
    return new


def _broker(value: Broker, world: Any) -> Broker:
    new: Broker = shallow(value)
    new.world = world
    new.disk = _disk(value.disk)
    new.disk.upto = world.upto
    new.replica = None if value.replica is None else _replica(value.replica)
    new.persisting = shallow(value.persisting)
    new.course = _slots(value.course)
    new.roles = {token: _slots(role) for token, role in value.roles.items()}
    new.owned, value.owned = set(), set()
    return new


def _oracle(value: Oracle, world: Any) -> Oracle:
    new: Oracle = shallow(value)
    new.world = world
    new.contents, new.votes = _nested(value.contents), _nested(value.votes)
    new.promised = _nested(value.promised)
    return new


def copy_world(world: Any) -> Any:
    """The whole of it; what happens to the copy does not happen to the original."""
    new = shallow(world)
    new.brokers = [_broker(broker, new) for broker in world.brokers]
    new.oracle = _oracle(world.oracle, new)
    return new
