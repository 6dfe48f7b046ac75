"""Who may import whom.

Rules on our own modules hold for everything reachable, so that no detour through a third module
gets around them, and a violation is reported with the way it takes. Rules on foreign modules hold
for what the room itself imports: `roles` may use `memory`, which uses multiprocessing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.sources import PACKAGES, Source, library, plant


@dataclass(frozen=True)
class Rule:
    """Modules in `rooms` import none of `never`. `*` is every module outside `never` itself."""

    rooms: tuple[str, ...]
    never: tuple[str, ...]

    def holds_for(self, module: str) -> bool:
        if "*" in self.rooms:
            return not _within(module, self.never)
        return _within(module, self.rooms)


OWN_RULES = (
    Rule(("hts_envs",), ("hts",)),
    Rule(("hts.learn", "hts.models", "hts.replay"), ("hts.memory", "hts.roles", "hts.runtime")),
    Rule(("*",), ("hts.cli",)),
)
FOREIGN_RULES = (Rule(("hts.roles",), ("multiprocessing", "torch.multiprocessing", "zmq")),)


def _within(module: str, rooms: Iterable[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def imports(source: Source) -> Iterator[tuple[str, int]]:
    """Every module the file names in an import, wherever that stands, and the line."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(source, node)
            yield base, node.lineno
            # `from package import module` imports a module too; other names match nothing.
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_call(node.func):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, node.lineno


def _base(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parents = source.module.split(".")
    kept = parents[: len(parents) - node.level + source.is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _is_import_call(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("import_module", "__import__")


def _graph(sources: list[Source]) -> dict[str, dict[str, str]]:
    """Module to the own modules it imports, each with the place of the import."""
    graph: dict[str, dict[str, str]] = {}
    for source in sources:
        edges = graph.setdefault(source.module, {})
        for target, line in imports(source):
            if _within(target, PACKAGES):
                edges.setdefault(target, source.where(line))
    return graph


def _way(graph: dict[str, dict[str, str]], start: str, never: tuple[str, ...]) -> list[str] | None:
    """The places of the imports that lead from a module into a forbidden room."""
    ways: dict[str, list[str]] = {start: []}
    waiting = [start]
    while waiting:
        module = waiting.pop(0)
        for target, where in graph.get(module, {}).items():
            if target in ways:
                continue
            ways[target] = [*ways[module], f"{where} imports {target}"]
            if _within(target, never):
                return ways[target]
            waiting.append(target)
    return None


def violations(sources: list[Source]) -> list[str]:
    graph = _graph(sources)
    found = []
    for source in sources:
        for rule in OWN_RULES:
            if rule.holds_for(source.module):
                way = _way(graph, source.module, rule.never)
                if way:
                    found.append(f"{source.module}: " + ", ".join(way))
        for rule in FOREIGN_RULES:
            if rule.holds_for(source.module):
                for target, line in imports(source):
                    if _within(target, rule.never):
                        found.append(f"{source.where(line)} imports {target}")
    return sorted(set(found))


def test_the_library_keeps_its_layers() -> None:
    """No module of the library reaches a room that its own room must not know."""
    sources = library()
    assert len(sources) > 5, "the checker found next to nothing to check"
    assert violations(sources) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("envs/world.py", "import hts"),
        ("envs/world.py", "from hts.learn import losses"),
        ("envs/world.py", "def late():\n    import hts.config"),
        ("hts/learn/losses.py", "from hts.memory.arena import Arena"),
        ("hts/models/net.py", "from hts import roles"),
        ("hts/replay/ring.py", "from ..runtime import serial"),
        ("hts/learn/losses.py", "import importlib\nimportlib.import_module('hts.memory')"),
        ("hts/learn/losses.py", "from hts.detour import anything"),
        ("hts/roles/actor.py", "import multiprocessing.shared_memory"),
        ("hts/roles/actor.py", "from multiprocessing import Queue"),
        ("hts/roles/actor.py", "import zmq"),
        ("hts/config.py", "from hts.cli.train import main"),
        ("envs/world.py", "import hts.cli"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path: Path, path: str, line: str) -> None:
    """Each kind of forbidden import is found, also relative, late, by name and by a detour."""
    detour = {"hts/detour.py": "import hts.memory.arena\n", "hts/memory/arena.py": ""}
    assert violations(plant(tmp_path, {**detour, path: line})) != []


def test_what_is_allowed_is_not_reported(tmp_path: Path) -> None:
    """Roles may use memory, commands may use each other, and like names are other modules."""
    files = {
        "envs/world.py": "import hts_envs.contract, htslib",
        "envs/contract.py": "",
        "hts/memory/arena.py": "import multiprocessing.shared_memory",
        "hts/roles/actor.py": "from hts.memory import arena",
        "hts/learn/losses.py": "from . import returns\nimport hts_envs.contract",
        "hts/cli/train.py": "from hts.cli import usage\nfrom hts.roles import actor",
    }
    assert violations(plant(tmp_path, files)) == []
