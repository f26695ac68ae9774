"""Listening sockets: one for each worker and port, everything or nothing."""

import socket

import pytest

from barco.errors import ConfigError, InUseError
from barco.sections import PortsSection
from barco.supervisor.listeners import PUBLIC, open_listeners

FREE = PortsSection(**dict.fromkeys(PortsSection.__slots__, 0))


def test_free_ports_are_shared_by_the_workers() -> None:
    listeners = open_listeners("127.0.0.1", FREE, range(3))
    try:
        for name in PUBLIC:
            numbers = {sockets[name].getsockname()[1] for sockets in listeners.by_worker.values()}
            assert numbers == {listeners.ports[name]}
        shards = [sockets["shard"].getsockname() for sockets in listeners.by_worker.values()]
        assert list(listeners.shard_endpoints.values()) == [
            f"127.0.0.1:{port}" for _, port in shards
        ]
        assert len(set(shards)) == 3
        everything = [sock for sockets in listeners.by_worker.values() for sock in sockets.values()]
        assert not any(sock.getblocking() or sock.get_inheritable() for sock in everything)
    finally:
        listeners.close()


def test_nothing_is_left_when_a_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        ports = PortsSection(discovery=0, produce=0, consume=0, metrics=taken, shard=0)
        with pytest.raises(InUseError, match=rf"ports.metrics \(127.0.0.1:{taken}\) is in use"):
            open_listeners("127.0.0.1", ports, range(2))


def test_ipv6() -> None:
    try:
        listeners = open_listeners("::1", FREE, [0])
    except ConfigError:
        pytest.skip("no IPv6 here: sysctl net.ipv6.conf.lo.disable_ipv6=0")
    assert listeners.shard_endpoints[0].startswith("[::1]:")
    listeners.close()


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ConfigError, match="is not an address of this machine"):
        open_listeners("192.0.2.1", FREE, [0])


def test_shard_ports_end_somewhere() -> None:
    ports = PortsSection(discovery=0, produce=0, consume=0, metrics=0, shard=65535)
    with pytest.raises((ConfigError, InUseError), match="worker 1 has no port left|in use"):
        open_listeners("127.0.0.1", ports, range(2))


def test_in_a_cluster_followers_have_no_public_port() -> None:
    listeners = open_listeners("127.0.0.1", FREE, (0, 1), range(2, 6), cluster=True)
    try:
        names = [sorted(sockets) for sockets in listeners.by_worker.values()]
        assert names[:2] == [sorted([*PUBLIC, "shard", "replication"])] * 2
        assert names[2:] == [["replication", "shard"]] * 4
        assert len(set(listeners.shard_endpoints.values())) == 6
    finally:
        listeners.close()


def test_a_process_more_and_one_less() -> None:
    """At run time; the public ports stay those that the others have."""
    listeners = open_listeners("127.0.0.1", FREE, [0], cluster=True)
    try:
        listeners.open(5, public=True, quiet=True)
        for name in PUBLIC:
            accepting = socket.SO_ACCEPTCONN
            assert listeners.by_worker[0][name].getsockopt(socket.SOL_SOCKET, accepting) == 1
            assert listeners.by_worker[5][name].getsockopt(socket.SOL_SOCKET, accepting) == 0
        listeners.open(3, public=False)
        assert sorted(listeners.by_worker) == sorted(listeners.shard_endpoints) == [0, 3, 5]
        assert sorted(listeners.by_worker[3]) == ["replication", "shard"]
        for name in PUBLIC:
            assert listeners.by_worker[5][name].getsockname()[1] == listeners.ports[name]
        gone = listeners.by_worker[5]["shard"].getsockname()
        listeners.shut(5)
        assert sorted(listeners.by_worker) == sorted(listeners.shard_endpoints) == [0, 3]
        socket.create_server(gone).close()
    finally:
        listeners.close()


def test_a_process_whose_port_is_taken_leaves_nothing() -> None:
    listeners = open_listeners("127.0.0.1", FREE, [0])
    try:
        with socket.create_server(("127.0.0.1", 0)) as other:
            first = other.getsockname()[1] - 4
            listeners.wanted = PortsSection(discovery=0, produce=0, consume=0, shard=first)
            with pytest.raises(InUseError, match="ports.shard"):
                listeners.open(4, public=False)
        assert list(listeners.by_worker) == [0] == list(listeners.shard_endpoints)
    finally:
        listeners.close()
