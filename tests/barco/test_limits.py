"""The limits: what is asserted at import, and that each has its reason."""

import ast
from pathlib import Path

from barco import config, limits

SOURCE = Path(limits.__file__).read_text("utf-8")


def constants() -> dict[str, object]:
    return {name: value for name, value in vars(limits).items() if name.isupper()}


def test_every_limit_is_positive_or_means_unlimited() -> None:
    for name, value in constants().items():
        if isinstance(value, tuple):
            continue
        assert isinstance(value, (int, float)), name
        assert value > 0 or name == "RETENTION_BYTES", name


def test_every_limit_has_a_reason() -> None:
    """A docstring after it, after the group it starts, or a comment."""
    statements = ast.parse(SOURCE).body
    reasons = 0
    unexplained: list[str] = []
    for statement in statements:
        if isinstance(statement, ast.Assign):
            unexplained.append(ast.unparse(statement.targets[0]))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            reasons += bool(unexplained)
            unexplained = []
    assert reasons > 25
    assert unexplained in ([], ["SHARD_PORTS_FROM"]), unexplained


def test_relations_are_asserted() -> None:
    asserts = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Assert)]
    assert len(asserts) >= 15


def test_defaults_of_the_knobs_come_from_here() -> None:
    defaults = {key.dotted: key.default for key in config.all_keys()}
    assert defaults["limits.event_bytes_max"] == limits.EVENT_BYTES_MAX == 1_048_576
    assert defaults["limits.request_bytes_max"] == limits.REQUEST_BYTES_MAX == 16_777_216
    assert defaults["limits.memory_bytes"] == limits.MEMORY_BYTES == 268_435_456
    assert defaults["topics.retention_hours"] == limits.RETENTION_HOURS == 168
    assert defaults["storage.segment_bytes"] == limits.SEGMENT_BYTES == 134_217_728
