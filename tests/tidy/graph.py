"""Circles of a graph, and the imports of the product as one."""

import ast
from collections.abc import Mapping
from functools import cache

from . import tree

Graph = Mapping[str, set[str]]


def circles(graph: Graph) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan), each sorted."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for after in graph.get(node, ()):
            if after not in order:
                visit(after)
            if after in stack:
                low[node] = min(low[node], low[after])
        if low[node] == order[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


@cache
def imports() -> dict[str, set[str]]:
    """Module to modules, those for type checkers too: what is read together is one thing."""
    modules = tree.modules()
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, ast.Import):
                named = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                whole = [(f"{node.module}.{each.name}", node.module) for each in node.names]
                named = [full if full in modules else base for full, base in whole]
            else:
                continue
            graph[name] |= {each for each in named if each in modules and each != name}
    return graph


def folded(graph: Graph, folder_of: Mapping[str, str]) -> dict[str, set[str]]:
    """The same between folders."""
    folders: dict[str, set[str]] = {folder: set() for folder in folder_of.values()}
    for name, after in graph.items():
        here = folder_of[name]
        folders[here] |= {folder_of[each] for each in after} - {here}
    return folders
