"""The project's own files, as the house tests see them: parsed once, by module and by room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = {"hts": "hts", "hts_envs": "envs", "hts_configs": "configs"}
"""Each installed package and the folder it comes from."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file below `root`, with the name it is imported by."""

    root: Path
    path: Path
    module: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def where(self, line: int = 1) -> str:
        return f"{self.path.relative_to(self.root)}:{line}"

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


def read(root: Path) -> list[Source]:
    """Every module of the packages whose folders exist below `root`."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found.append(Source(root, path, name))
    return found


@cache
def library() -> list[Source]:
    """Every module of this project's packages, parsed once for all tests."""
    return read(ROOT)


def plant(root: Path, files: dict[str, str]) -> list[Source]:
    """The library of a small project written below `root`, for the checkers' own tests."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read(root)
