"""A folder is a floor: what it imports is of its own or stands before it in this table.

`test_layers.py` says which houses know each other at all; here is the order of the rooms.
"""

from collections import Counter
from itertools import pairwise

from . import graph, tree

FLOORS = (
    *("barco.types", "barco.errors", "barco.limits", "barco.model"),
    *(
        "barco.settings_file",
        "barco.addresses",
        "barco.sections",
        "barco.config",
        "barco.log",
        "barco.console",
        "barco.protocol",
        "barco.mutual",
    ),
    # The machines of the control plane.
    *("barco.cluster", "barco.cluster.state", "barco.cluster.replica"),
    "barco.cluster.logs",
    *("barco.cluster.ring", "barco.cluster.gossip", "barco.cluster.groups"),
    # The library, and Spark upon it.
    *("barco.client.base", "barco.client.wire", "barco.client.consuming", "barco.client", "barco"),
    # Tables of events.
    *("barco.arrow", "barco.tables"),
    *("barco.spark.base", "barco.spark.write", "barco.spark.read", "barco.spark"),
    *("barco.supervisor.files", "barco.supervisor.wire", "barco.supervisor.sources"),
    *("barco.supervisor", "barco.kubernetes"),
    # The worker, from its seams to its composition.
    *("barco.workers.seams", "barco.workers.watched"),
    *("barco.workers.storage", "barco.workers.storage.files", "barco.workers.storage.index"),
    *("barco.workers.storage.reading", "barco.workers.storage.stores"),
    *("barco.workers.shard", "barco.workers.groups", "barco.workers.queues"),
    *("barco.workers.writes", "barco.workers.schemas"),
    "barco.workers.delays",
    "barco.workers.writes",
    *("barco.workers.peers", "barco.workers.operations", "barco.workers.process"),
    "barco.workers.tracing",
    "barco.workers.replication",
    *("barco.workers.http.shapes", "barco.workers.http.base", "barco.workers.http.listening"),
    *("barco.workers.http.schemas", "barco.workers.http.checking"),
    *("barco.workers.http.consuming", "barco.workers.http.handlers"),
    "barco.workers.http.shippers",
    "barco.workers.http",
    "barco.workers",
    # Commands; the offline ones look into files that only the storage of a worker understands.
    *("barco.cli.shared", "barco.cli.commands", "barco.cli", "barco.__main__"),
)
"""From the ground up. The longest name that fits a module is its floor."""

LOOSE_MAX = 14
"""Modules of one folder, besides its __init__: what a reader can take in at a glance."""


def floor(name: str) -> str:
    """Where a module lives: `barco` alone is the package's own __init__."""
    fits = [each for each in FLOORS if name == each or name.startswith(each + ".")]
    found = max(fits, key=len)
    assert found != "barco" or name == "barco", f"{name} has no floor: give it one in FLOORS"
    return found


def upward(imports: graph.Graph) -> list[str]:
    """Imports of what stands above."""
    height = {each: at for at, each in enumerate(FLOORS)}
    return [
        f"{name} imports {each}, which is {floor(each)}, above {floor(name)}"
        for name in sorted(imports)
        for each in sorted(imports[name])
        if height[floor(each)] > height[floor(name)]
    ]


def crowded(names: list[str]) -> list[str]:
    """Folders of too many modules."""
    packages = {name.rpartition(".")[0] for name in names}
    loose = Counter(name.rpartition(".")[0] for name in names if name not in packages)
    return [f"{folder}: {count} modules" for folder, count in loose.items() if count > LOOSE_MAX]


def test_every_module_has_a_floor() -> None:
    used = {floor(name) for name in tree.modules()}
    assert used == set(FLOORS), f"floors of nothing: {set(FLOORS) - used}"


def test_nothing_imports_upward() -> None:
    wrong = upward(graph.imports())
    assert not wrong, "\n".join(wrong)


def test_no_circles() -> None:
    """Neither of modules, those in one folder included, nor of folders."""
    imports = graph.imports()
    assert not graph.circles(imports)
    folders = {name: floor(name) for name in imports}
    assert not graph.circles(graph.folded(imports, folders))


def test_folders_are_not_crowded() -> None:
    wrong = crowded(list(tree.modules()))
    assert not wrong, "\n".join(wrong)


def test_one_hand_for_http() -> None:
    """One module of the product reads answers of HTTP, by one library."""
    readers = {"http.client", "urllib.request", "httptools", "requests", "aiohttp", "httpx"}
    found = {
        name
        for name, path in tree.modules().items()
        if any(module in readers for module, _, _ in tree.imports(path))
    }
    assert found == {"barco.client.wire.http1"}


def test_the_rules_catch_what_they_are_for() -> None:
    below, above = "barco.workers.storage.files.bulk", "barco.workers.storage.index.sidecar"
    assert not upward({above: {below}})
    assert upward({below: {above}})
    assert graph.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert not graph.circles({one: {after} for one, after in pairwise("abcd")})
    assert crowded([f"barco.x.m{each}" for each in range(LOOSE_MAX + 1)])
    assert not crowded([f"barco.x.m{each}" for each in range(LOOSE_MAX)])
