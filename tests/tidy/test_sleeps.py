"""Nothing asks again and again for what could be told: who sleeps is named here, with the reason.

A wait for something in the same process is an event, a future or `Turns.until`. Giving way
(`asyncio.sleep(0)`) is no wait.
"""

import ast
from collections.abc import Iterator

from . import tree

BY_THE_CLOCK = {
    # Done every so often whatever happens, or so long after something.
    "barco.supervisor.systemd:await_ready": "systemd is told again",
    "barco.supervisor.files.certificate:watch": "certificates age",
    "barco.supervisor.broker:_tick": "the control plane's clock",
    "barco.supervisor.systemd:watch": "systemd's clock",
    "barco.supervisor.machine:warn_open": "a warning that comes again",
    "barco.supervisor.processes:_watch": "silence is what it looks for",
    "barco.client.consuming.heartbeats:_run": "its pace",
    "barco.cli.commands.ring:_watch": "its pace: each look asks every leader",
    "barco.cli.commands.polar.consuming:_beat": "its pace",
    "barco.cli.commands.top:_live": "its pace: each look asks every leader",
    "barco.cli.commands.top:_run": "rates are of a second",
    "barco.cli.commands.backup.image:spent": "so that the broker has its disk",
    "barco.cli.commands.backup.image:_opened": "a journal of another process, which tells nobody",
    "barco.cli.commands.upgrade_check:run": "its pace: brokers tell nobody who only looks on",
    "barco.cli.commands.pre_stop:run": "its pace: brokers tell nobody who only looks on",
    "barco.cli.commands.scale:_look_on": "its pace: brokers tell nobody who only looks on",
    "barco.workers.worker:_heartbeat": "silence would be taken for death",
    "barco.workers.worker:_retention": "events age",
    "barco.workers.worker:_idle_positions": "groups age",
    "barco.workers.worker:_staging": "writes age",
    "barco.workers.process.sealing:tell_failures": "one line a minute",
    "barco.workers.process.footprint:watch": "the kernel does not tell how large a process is",
    "barco.workers.process.hour:watch": "a step of the last hour",
    "barco.workers.process.stages:watch": "of late is a time",
    "barco.workers.tracing.exporter:run": "one request a second, whatever there is",
    "barco.cli.commands.drain:_look_on": "its pace: brokers tell nobody who only looks on",
    "barco.workers.operations.leaving.drains:run": "who has what changes without a word to it",
    "barco.workers.operations.leaving.depot:run": "who has what changes without a word to it",
    "barco.workers.operations.leaving.depot:_copy_from": "its pace",
    "barco.workers.operations.network:_exchange": "news may have been lost",
    "barco.workers.groups.views:_watch": "a poll that waits is a sign of life",
    "barco.workers.groups.views:_touch": "many are told together",
    "barco.workers.storage.stores.scrub:_run": "between two passes",
    "barco.workers.storage.stores.scrub:_drive": "its pace: the disk serves others, too",
    "barco.workers.storage.stores.retention:_empty_trash": "its pace",
    "barco.workers.storage.stores.replicas:_cut": "who still reads there has gone by then",
}
BEFORE_ANOTHER_TRY = {
    # Another process, a disk or the kernel has to do something first, and tells nobody.
    "barco.workers.operations.target:ask": "a follower's log",
    "barco.supervisor.listeners:_check_free": "another process' port",
    "barco.supervisor.files.lock:open_lock": "another process' lock",
    "barco.supervisor.gossip:_connect": "a broker that was tried just now",
    "barco.kubernetes.api:follow": "the API server",
    "barco.tables.job:_slices": "who leads a slice since a moment",
    "barco.tables.iceberg:_stored_after": "a catalogue that gave no answer",
    "barco.cli.shared.in_kubernetes:_waited": "the API server, addresses of pods, a cluster",
    "barco.supervisor.sources.asking:ask": "its pace: nobody is told when a leader is there",
    "barco.supervisor.sources.wish:wish": "what another broker has set, told by gossip",
    "barco.workers.peers.siblings:_connect": "a process that is not there",
    "barco.workers.replication.link:_run": "a process that is not there",
    "barco.workers.replication.carrier:_add_segment": "room on the disk",
    "barco.workers.replication.states:fetch": "another broker's state",
    "barco.workers.replication.states:_sums": "another broker's state",
    "barco.workers.operations.readiness:await_others": "another broker's copy",
    "barco.workers.operations.access:run": "who keeps it, or a connection there",
    "barco.workers.operations.asking:run": "who keeps the target; other steps of the ring",
    "barco.workers.operations.readiness:announce": "leaders elsewhere; until the first time only",
    "barco.workers.http.base.waiting:again": "a leader elsewhere",
    "barco.workers.http.checking.subjects:_ask": "questions of others, answered a moment ago",
    "barco.workers.http.handlers.consume:_poll_until": "who was asked said what was not so",
    "barco.workers.http.handlers.read:_read": "who was asked said what was not so",
    "barco.workers.http.handlers.listen:begin_at": "earlier answers on the connection",
    "barco.workers.http.handlers.listen:_catch_up_slice": "another broker's copy",
    "barco.workers.http.listening.feeds:_pump": "another broker; and what comes is gathered",
    "barco.workers.http.listening.feeds:_wait": "who was asked said what was not so",
    "barco.workers.http.listening.feeds:_push": "connections that are being ended",
    "barco.workers.writes.staging:_append": "room in the log; each try packs all of it again",
    "barco.workers.storage.stores.scrub:_retry": "another broker's bytes",
    "barco.workers.storage.stores.restoring:_replay": "another broker's bytes",
    "barco.workers.storage.stores.shard_files:_add_sealed": "room on the disk",
    "barco.workers.storage.files.bulk:_whole": "EAGAIN of the kernel",
    # Brokers, for whom the library and Spark wait longer each time.
    "barco.workers.http.handlers.queues:_until": "who was asked said what was not so",
    "barco.client.queue:lease": "a broker",
    "barco.client.queue:_insist": "a broker",
    "barco.client.admin:_request": "a broker",
    "barco.client.consuming.enrolment:_insist": "a broker",
    "barco.client.consuming.consumer:_poll_member": "a broker",
    "barco.client.consuming.consumer:step": "a broker, or one that is behind another",
    "barco.client.consuming.consumer:_insist": "a broker",
    "barco.client.consuming.consumer:handle": "a handler that failed",
    "barco.client.consuming.blocking:handle": "a handler that failed",
    "barco.client.slice_reads:_fetch": "a broker",
    "barco.client.piping:again": "a broker",
    "barco.client.wire.earlier:_ask": "a broker",
    "barco.client.wire.staged:commit": "a broker",
    "barco.client.wire.staged:_anywhere": "a broker",
    "barco.client.wire.staged:_insist": "a broker",
    "barco.client.wire.staged:_commit": "a broker",
    "barco.client.sender:_attempts": "a broker",
    "barco.client.wire.discovery:_ask": "a broker",
    "barco.spark.base.fetch:_failed": "a broker",
    "barco.spark.base.fetch:get": "a broker",
    "barco.spark.read.stream:_look_again": "a broker that is behind",
    "barco.spark.write.commit:_commit": "a broker",
    "barco.spark.write.commit:_everywhere": "brokers that tell who has slices that moved",
    "barco.spark.write.stage:_move": "brokers that tell who has slices that moved",
    "barco.spark.write.commit:put": "a broker; ends at once when given up",
}


def sleeps(tree_: ast.Module) -> Iterator[tuple[str, int]]:
    """(function, line) of every sleep but those of no time."""
    stack: list[tuple[ast.AST, str]] = [(tree_, "")]
    while stack:
        node, function = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            no_time = (
                node.args and isinstance(node.args[0], ast.Constant) and not node.args[0].value
            )
            if name.lstrip("_") == "sleep" and not no_time:
                yield function, node.lineno
        stack += [(child, function) for child in ast.iter_child_nodes(node)]


def test_who_sleeps_is_known() -> None:
    known = BY_THE_CLOCK | BEFORE_ANOTHER_TRY
    found = {
        f"{name}:{function}": f"{tree.relative(path)}:{line}"
        for name, path in tree.modules().items()
        for function, line in sleeps(tree.parsed(path))
    }
    new = [place for each, place in found.items() if each not in known]
    assert not new, f"wait for what you wait for (Turns, an event), or say here why not: {new}"
    assert not known.keys() - found.keys(), f"they do not sleep: {known.keys() - found.keys()}"
    assert not BY_THE_CLOCK.keys() & BEFORE_ANOTHER_TRY.keys()


def test_sleeps_are_seen() -> None:
    text = """
async def poll():
    while not ready():
        await asyncio.sleep(PAUSE)
    await asyncio.sleep(0)

def wait():
    time.sleep(0.1), self._sleep(1.0), sleep(x)
    sleepy(1)
"""
    assert sorted(sleeps(ast.parse(text))) == [("poll", 4), *[("wait", 8)] * 3]
