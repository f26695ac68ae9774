"""Who may import whom, and which modules are pure."""

import ast

from . import tree

VALUES = ("barco.types", "barco.errors", "barco.limits", "barco.model")
BYTES = (*VALUES, "barco.protocol", "barco._native")

# The longest prefix that fits a module decides. What stands here is all that it may import of
# barco, besides its own package.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "barco": ("barco.client", "barco.errors", "barco.types"),
    "barco.__main__": ("barco.cli",),
    "barco.types": (),
    "barco.errors": (),
    "barco.limits": ("barco.types",),
    "barco.model": VALUES,
    "barco.addresses": VALUES,
    "barco.config": (*VALUES, "barco.addresses", "barco.sections", "barco.settings_file"),
    "barco.sections": VALUES,
    "barco.settings_file": VALUES,
    "barco.log": VALUES,
    "barco.console": (),
    "barco.protocol": BYTES,
    "barco.mutual": BYTES,
    "barco.cluster": BYTES,
    "barco.supervisor": (
        *(
            *BYTES,
            "barco",
            "barco.addresses",
            "barco.config",
            "barco.sections",
            "barco.log",
            "barco.mutual",
            "barco.cluster",
        ),
    ),
    "barco.kubernetes": (*BYTES, "barco.config", "barco.supervisor.sources"),
    "barco.client": (*BYTES, "barco"),
    "barco.arrow": (*BYTES, "barco"),
    "barco.tables": (*BYTES, "barco", "barco.client", "barco.arrow"),
    "barco.spark": (*BYTES, "barco", "barco.client", "barco.arrow"),
    "barco.cli": (
        *(*BYTES, "barco", "barco.addresses", "barco.config", "barco.sections", "barco.log"),
        *("barco.supervisor", "barco.client", "barco.kubernetes"),
    ),
    # Offline tools look at files that only the storage of a worker understands.
    "barco.cli.commands.aside": (
        *BYTES,
        "barco.cli",
        "barco.supervisor.datadir",
        "barco.workers.storage",
    ),
    "barco.cli.commands.backup": (
        *(*BYTES, "barco", "barco.cli", "barco.supervisor", "barco.workers.storage"),
    ),
    "barco.cli.commands.restore": (
        *(*BYTES, "barco.cli", "barco.supervisor", "barco.workers.storage"),
    ),
    "barco.cli.commands.check": (
        *(*BYTES, "barco", "barco.cli", "barco.config", "barco.sections", "barco.supervisor"),
        "barco.workers.storage",
    ),
    "barco.cli.commands.upgrade_check": (
        *(*BYTES, "barco", "barco.cli", "barco.config", "barco.sections", "barco.supervisor"),
        "barco.workers.storage",
    ),
    "barco.cli.commands.dump": (
        *BYTES,
        "barco.cli",
        "barco.supervisor.datadir",
        "barco.workers.storage",
    ),
    "barco.cli.commands.recover": (
        *BYTES,
        "barco.cli",
        "barco.supervisor.files.lock",
        "barco.workers.storage",
    ),
    "barco.cli.commands.unclean": (
        *(*BYTES, "barco.cli", "barco.supervisor.datadir", "barco.workers.storage"),
        *("barco.cluster.state.unclean", "barco.supervisor.files.lock"),
    ),
    "barco.cli.shared.joining": (
        *(*BYTES, "barco", "barco.cli", "barco.config", "barco.sections", "barco.cluster.ring"),
    ),
    "barco.cli.shared.routes": (*BYTES, "barco.cluster.ring"),
    "barco.cli.commands.ring": (*BYTES, "barco", "barco.cli", "barco.client", "barco.cluster.ring"),
    "barco.cli.commands.scale": (*BYTES, "barco", "barco.cli", "barco.cluster.ring"),
    "barco.cli.commands.drain": (*BYTES, "barco", "barco.cli", "barco.cluster.ring"),
    # A worker hosts the replicas of its shard: pure machines that it drives.
    "barco.cli.commands.export": (*BYTES, "barco", "barco.cli", "barco.client", "barco.tables"),
    "barco.cli.commands.spark_load": (*BYTES, "barco", "barco.cli", "barco.client", "barco.spark"),
    "barco.workers": (*BYTES, "barco", "barco.log", "barco.mutual", "barco.cluster"),
    "barco.workers.http": (*BYTES, "barco", "barco.log", "barco.console", "barco.workers"),
}
NOT_EVEN_SO = {
    "barco.workers.http": ("barco.workers.storage", "barco.workers.replication"),
}

PURE = ("barco.types", "barco.errors", "barco.limits", "barco.model", "barco.protocol")
PURE_MACHINES = ("barco.cluster", "barco.supervisor.control")
PURE_BYTES = (
    *("barco.workers.storage.files.frames", "barco.workers.storage.files.records"),
    *("barco.workers.storage.index.scan", "barco.workers.storage.index.torn"),
    "barco.workers.storage.index.verdict",
    "barco.workers.replication.persisting",
)
"""What a start makes of the bytes that it finds: files are kept by their neighbours."""
COROUTINES = ("barco.workers.http",)
"""They may wait, but for nothing that they have not been given."""

IMPURE = {
    "asyncio",
    "os",
    "pathlib",
    "random",
    "select",
    "selectors",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
}

CONNECTING = ("create_connection", "open_connection", "create_unix_connection", "socket")

ENVIRONMENT = {
    "barco.config",
    "barco.sections",
    "barco.workers.replication.mutants",
    "barco.supervisor.systemd",
    "barco.supervisor.tied",  # What harnesses start gets what they have.
    "barco.supervisor.files.credentials",
    "barco.cli.shared.shown",
    "barco.cli.shared.talk",
    "barco.cli.commands.tour",  # What it runs gets what it has.
    "barco.spark.base.cores",
    "barco.spark.sessions",
}


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def impure_for(name: str) -> set[str]:
    """The modules that this one has no business with."""
    if any(within(name, pure) for pure in PURE + PURE_MACHINES + PURE_BYTES):
        return IMPURE
    if any(within(name, pure) for pure in COROUTINES):
        return IMPURE - {"asyncio"}
    return set()


def rule(name: str) -> str:
    """The longest prefix with a rule; `barco` itself only for the package's own __init__."""
    fitting = [prefix for prefix in MAY_IMPORT if within(name, prefix) and prefix != "barco"]
    return max(fitting, key=len, default="barco")


def allowed(importer: str, imported: str) -> bool:
    if any(within(imported, banned) for banned in NOT_EVEN_SO.get(rule(importer), ())):
        return False
    own = rule(importer)
    if own != "barco" and within(imported, own):
        return True
    return any(
        imported == may or (may != "barco" and within(imported, may)) for may in MAY_IMPORT[own]
    )


def test_layers() -> None:
    wrong = [
        f"{tree.relative(path)}:{line}: {name} may not import {imported}"
        for name, path in tree.modules().items()
        for imported, line, _ in tree.imports(path)
        if within(imported, "barco") and not allowed(name, imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_rule() -> None:
    without = [name for name in tree.modules() if rule(name) == "barco" and name != "barco"]
    assert not without, f"say in MAY_IMPORT what these may import: {without}"


def test_imports_are_absolute() -> None:
    wrong = [
        f"{tree.relative(path)}:{line}: {imported}"
        for path in tree.modules().values()
        for imported, line, _ in tree.imports(path)
        if imported.startswith((".", "workers"))
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_for_tests_is_in_no_product() -> None:
    """The Python oracles of C formats, and the faces of the core that only tests use."""
    wrong = [
        f"{tree.relative(path)}:{line}: {imported}"
        for path in tree.modules().values()
        for imported, line, _ in tree.imports(path)
        if imported.split(".")[0] in ("barco_faces", "reference", "tests")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_imports_inside_functions() -> None:
    """Except the lazy public names of the package itself."""
    wrong = [
        f"{tree.relative(path)}:{line}: {imported}"
        for name, path in tree.modules().items()
        for imported, line, inside in tree.imports(path)
        if inside and name != "barco"
    ]
    assert not wrong, "\n".join(wrong)


def test_pure_modules_touch_nothing() -> None:
    wrong = [
        f"{tree.relative(path)}:{line}: {name} is pure and may not import {imported}"
        for name, path in tree.modules().items()
        for imported, line, _ in tree.imports(path)
        if imported.split(".")[0] in impure_for(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_environment_is_read_in_one_place() -> None:
    wrong = []
    for name, path in tree.modules().items():
        for node in ast.walk(tree.parsed(path)):
            text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if text in ("os.environ", "os.getenv", "os.environb") and name not in ENVIRONMENT:
                wrong.append(f"{tree.relative(path)}:{node.lineno}: {text}")
    assert not wrong, "\n".join(wrong)


def test_clients_connect_in_one_place() -> None:
    """How brokers are reached is one thing to change (barco/client/wire/access.py)."""
    wrong = []
    for name, path in tree.modules().items():
        if not name.startswith(("barco.client.", "barco.spark.", "barco.cli.")):
            continue
        for node in ast.walk(tree.parsed(path)):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.rpartition(".")[2] in CONNECTING and name != "barco.client.wire.access":
                wrong.append(f"{tree.relative(path)}: {called}")
    assert not wrong, "\n".join(wrong)


def test_the_rules_catch_what_they_are_for() -> None:
    assert not allowed("barco.supervisor.broker", "barco.workers.worker")
    assert not allowed("barco.workers.worker", "barco.supervisor.broker")
    assert not allowed("barco.workers.http.app", "barco.workers.storage.reading.reader")
    assert not allowed("barco.model.token", "barco.protocol.frame")
    assert allowed("barco.cli.commands.dump", "barco.protocol.batch")
    assert allowed("barco.protocol.batch", "barco._native")
