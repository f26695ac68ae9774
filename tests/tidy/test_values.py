"""Values below the client are `msgspec.Struct`: a dataclass is compiled anew at each start."""

import ast

from . import tree

FLOORS = ("barco/protocol/", "barco/cluster/", "barco/model/", "barco/supervisor/", "workers/")

DATACLASSES = {
    "Cut": "remembers what it has worked out",
    "Fact": "its hash is no part of comparisons",
    "AccessTable": "remembers what it has worked out",
    "RingView": "remembers what it has worked out",
    "WorkerOptions": "secrets stay out of its text",
    "Certificate": "its key stays out of its text",
    "Piece": "stands beside the next two",
    "CommitPlan": "how long it is kept is no part of comparisons",
    "Write": "stands beside the last two",
    "Route": "what is worked out of it is no part of comparisons",
    "Filling": "is a part of the next",
    "Member": "what is remembered of it is no part of comparisons",
}
"""Those that stay, with why."""


def test_no_value_is_a_dataclass() -> None:
    found = {}
    for path in tree.python():
        name = tree.relative(path)
        if name.startswith(FLOORS):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and any(
                    "dataclass" in ast.unparse(each) for each in node.decorator_list
                ):
                    found[node.name] = name
    assert found.keys() == DATACLASSES.keys(), found
