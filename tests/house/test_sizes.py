"""How long functions and files are, and how much goes in and comes out; with the real numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.sources import Function, Source, library, plant

FUNCTION_LINES_P90 = 30
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 400
POSITIONAL_MAX = 5
TUPLE_MAX = 3

FOREIGN_TUPLES = {("hts_envs.football.reference", "step")}
"""Functions that stand in for another library's, and return what that one returns."""


def _lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def function_lengths(sources: list[Source]) -> list[int]:
    return sorted(_lines(function) for source in sources for function in source.functions())


def percentile_90(lengths: list[int]) -> int:
    """The smallest length that nine tenths of the functions do not exceed."""
    return lengths[-(-9 * len(lengths) // 10) - 1] if lengths else 0


def long_functions(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        for function in source.functions():
            if _lines(function) > FUNCTION_LINES_MAX:
                yield f"{source.where(function.lineno)} {function.name}: {_lines(function)} lines"


def long_files(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        lines = len(source.text.splitlines())
        if lines > FILE_LINES_MAX:
            yield f"{source.where()}: {lines} lines"


def many_parameters(sources: list[Source]) -> Iterator[str]:
    for source in sources:
        for function in source.functions():
            names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            if count > POSITIONAL_MAX:
                yield f"{source.where(function.lineno)} {function.name}: {count} positional"


def wide_tuples(sources: list[Source]) -> Iterator[str]:
    """Functions that return several different things; `tuple[X, ...]` is one thing, a sequence."""
    for source in sources:
        for function in source.functions():
            returns = function.returns
            width = 0 if returns is None else max(map(_fields, ast.walk(returns)))
            if returns is None or not _is_sequence(returns):
                width = max([width, *_returned_widths(function)])
            if width > TUPLE_MAX and not _is_foreign(source, function):
                yield f"{source.where(function.lineno)} {function.name} returns {width} values"


def _is_foreign(source: Source, function: Function) -> bool:
    return (source.module, function.name) in FOREIGN_TUPLES


def _fields(annotation: ast.AST) -> int:
    """How many fields `tuple[a, b, ...]` has; 0 for anything else."""
    if isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") == "tuple":
        inner = annotation.slice
        return len(inner.elts) if isinstance(inner, ast.Tuple) else 1
    return 0


def _is_sequence(annotation: ast.expr) -> bool:
    written = ast.unparse(annotation)
    return written.startswith("Sequence[") or (
        _fields(annotation) == 2 and written.endswith(", ...]")
    )


def _returned_widths(function: Function) -> Iterator[int]:
    inside: list[ast.AST] = list(function.body)
    while inside:
        node = inside.pop()
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
            yield len(node.value.elts)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inside.extend(ast.iter_child_nodes(node))


def test_functions_are_a_screenful(report: Callable[[str], None]) -> None:
    """Nine functions in ten fit 30 lines and none exceeds 70, signature and docstring included."""
    sources = library()
    lengths = function_lengths(sources)
    assert len(lengths) > 20, "the checker found next to nothing to measure"
    p90 = percentile_90(lengths)
    median = lengths[len(lengths) // 2]
    report(
        f"{len(lengths)} functions: median {median} lines, 90th percentile {p90} "
        f"(at most {FUNCTION_LINES_P90}), longest {lengths[-1]} (at most {FUNCTION_LINES_MAX})"
    )
    assert p90 <= FUNCTION_LINES_P90
    assert list(long_functions(sources)) == []


def test_files_are_short(report: Callable[[str], None]) -> None:
    """No file of the library exceeds 400 lines."""
    sources = library()
    longest = max(sources, key=lambda source: len(source.text.splitlines()))
    lines = sum(len(source.text.splitlines()) for source in sources)
    report(
        f"{len(sources)} files, {lines} lines: longest {longest.where()} with "
        f"{len(longest.text.splitlines())} (at most {FILE_LINES_MAX})"
    )
    assert list(long_files(sources)) == []


def test_little_goes_in_and_comes_out() -> None:
    """At most five positional parameters, and no tuple of more than three is returned."""
    assert list(many_parameters(library())) == []
    assert list(wide_tuples(library())) == []


BODY = "    pass\n"


@pytest.mark.parametrize(
    ("checker", "text"),
    [
        (long_functions, "def f():\n" + BODY * 70),
        (long_functions, "class A:\n    async def f(self):\n" + "        pass\n" * 70),
        (long_files, "\n" * 401),
        (many_parameters, "def f(a, b, c, d, e, f): pass"),
        (many_parameters, "class A:\n    def f(self, a, b, c, /, d, e, f): pass"),
        (wide_tuples, "def f(): return 1, 2, 3, 4"),
        (wide_tuples, "def f() -> Any:\n    if x:\n        return 1, 2, 3, 4"),
        (wide_tuples, "def f() -> tuple[int, int, int, int]: ..."),
        (wide_tuples, "def f() -> Iterator[tuple[int, int, int, int]]: ..."),
    ],
)
def test_a_planted_excess_is_caught(
    tmp_path: Path, checker: Callable[[list[Source]], Iterator[str]], text: str
) -> None:
    """Each limit is enforced one above its value."""
    assert list(checker(plant(tmp_path, {"hts/planted.py": text}))) != []


@pytest.mark.parametrize(
    ("checker", "text"),
    [
        (long_functions, "def f():\n" + BODY * 69),
        (long_files, "\n" * 400),
        (many_parameters, "class A:\n    def f(self, a, b, c, d, e, *, f, g): pass"),
        (wide_tuples, "def f() -> tuple[int, ...]: return 1, 2, 3, 4"),
    ],
)
def test_the_limit_itself_is_allowed(
    tmp_path: Path, checker: Callable[[list[Source]], Iterator[str]], text: str
) -> None:
    """Each limit allows its very value."""
    assert list(checker(plant(tmp_path, {"hts/planted.py": text}))) == []


def test_the_percentile_is_the_smallest_that_covers_nine_in_ten() -> None:
    """Of ten lengths the ninth counts, of eleven the tenth."""
    assert percentile_90(list(range(1, 11))) == 9
    assert percentile_90(list(range(1, 12))) == 10
