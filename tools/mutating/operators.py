"""Mutations of a source text: one small, hand-chosen change of the syntax tree at a time.

A mutation replaces one piece of the text, so that everything else keeps its lines. Texts for
people are left alone: docstrings, annotations, decorators, assertions and what is raised.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

Change = tuple[ast.expr | ast.stmt, str]
"""A node, and the text that replaces it."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}

_PAIRS = (
    ("min", "max"),
    ("amin", "amax"),
    ("minimum", "maximum"),
    ("argmin", "argmax"),
    ("any", "all"),
    ("zeros", "ones"),
    ("floor", "ceil"),
    ("sum", "mean"),
    ("append", "extend"),
    ("startswith", "endswith"),
    ("cos", "sin"),
    ("exp", "expm1"),
)
NAMES = dict(_PAIRS) | {second: first for first, second in _PAIRS}
"""A function, and the one that it is mistaken for."""

UNCHANGED = {"abs", "clamp", "clip", "copy", "clone", "deepcopy", "reversed", "sorted", "sqrt"}
"""Functions, and methods, whose result may be mistaken for what they were given."""

UNTOUCHED = {None, "default_factory", "metadata", "repr", "strict", "device", "non_blocking"}
"""Keywords that change nothing a test on a CPU could see: `zip(strict=True)` is an assertion."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module."""

    line: int
    last_line: int
    before: str
    after: str
    text: str
    """The whole module after the change."""

    where: str
    """The qualified name of the outermost function, or "" where it is read on import."""


def mutants(text: str) -> list[Mutant]:
    """Return every mutation of a module, in the order of its lines."""
    tree = ast.parse(text)
    _link(tree)
    starts = _line_starts(text)
    raw = text.encode()
    found = {}
    for node in _mutable(tree):
        for target, replacement in _changes(node):
            begin, end = _place(starts, target)
            if raw[begin:end].decode() != replacement:
                made = (raw[:begin] + replacement.encode() + raw[end:]).decode()
                found.setdefault(made, _mutant(text, made, target))
    return sorted(found.values(), key=lambda mutant: (mutant.line, mutant.after))


def _mutant(text: str, made: str, node: ast.expr | ast.stmt) -> Mutant:
    statement = _statement(node)
    first, last = _header(statement) if node is not statement else (node.lineno, _end(node))
    before, after = text.splitlines(), made.splitlines()
    removed = len(before) - len(after)
    return Mutant(
        node.lineno,
        last,
        " ".join(line.strip() for line in before[first - 1 : last]),
        " ".join(line.strip() for line in after[first - 1 : last - removed]),
        made,
        _function(node),
    )


def _link(tree: ast.AST) -> None:
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            child.parent = parent  # type: ignore[attr-defined]


def _parent(node: ast.AST) -> ast.AST | None:
    return getattr(node, "parent", None)


def _parents(node: ast.AST) -> Iterator[ast.AST]:
    above = _parent(node)
    while above is not None:
        yield above
        above = _parent(above)


def _statement(node: ast.expr | ast.stmt) -> ast.stmt:
    if isinstance(node, ast.stmt):
        return node
    return next(each for each in _parents(node) if isinstance(each, ast.stmt))


def _header(statement: ast.stmt) -> tuple[int, int]:
    """Return the first and last line of a statement, without the statements in it."""
    body = getattr(statement, "body", None)
    if not isinstance(body, list):
        return statement.lineno, _end(statement)
    return statement.lineno, max(statement.lineno, body[0].lineno - 1)


def _end(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _function(node: ast.AST) -> str:
    """Return the qualified name of the outermost function that runs the node."""
    below, found = node, ""
    classes: list[str] = []
    for above in _parents(node):
        if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = above.name if below in above.body else ""
            classes = []
        elif isinstance(above, ast.ClassDef):
            classes.insert(0, above.name)
        below = above
    return ".".join([*classes, found]) if found else ""


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _place(starts: list[int], node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_col_offset is not None, "the parser knows where it ends"
    begin = starts[node.lineno - 1] + node.col_offset
    return begin, starts[_end(node) - 1] + node.end_col_offset


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below this one whose change could change a result."""
    skipped: list[ast.AST | None] = []
    if isinstance(node, (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        skipped = [node.returns, *node.decorator_list]
        skipped += [
            default
            for default in node.args.defaults + node.args.kw_defaults
            if default is not None and not isinstance(default, (ast.Constant, ast.UnaryOp))
        ]
    elif isinstance(node, ast.ClassDef):
        skipped = [*node.decorator_list, *node.bases]
    elif isinstance(node, ast.AnnAssign):
        skipped = [node.annotation]
        if ast.unparse(node.annotation) == "TypeAlias":
            return
    elif isinstance(node, ast.arg) or (isinstance(node, ast.keyword) and node.arg in UNTOUCHED):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _mutable(child)


def _changes(node: ast.AST) -> Iterator[Change]:
    for operator in OPERATORS:
        yield from operator(node)


def _written(node: ast.expr) -> str:
    """Write a node as text that keeps its meaning inside another expression."""
    text = ast.unparse(node)
    is_plain = isinstance(node, (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript))
    return text if is_plain else f"({text})"


def _flip_comparison(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                made = copy.copy(node)
                made.ops = [*node.ops]
                made.ops[place] = other()
                yield node, f"({ast.unparse(made)})"


def _change_constant(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    is_negative = isinstance(_parent(node), ast.UnaryOp)
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, int) and not is_negative:  # -1 is a place, and never -2
        yield node, str(node.value + 1)
        if isinstance(_parent(node), (ast.Slice, ast.Compare)) and node.value:
            yield node, str(node.value - 1)
    elif isinstance(node.value, float):
        yield node, repr(node.value * 2.0 if node.value else 1.0)


def _change_arithmetic(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        made = copy.copy(node)
        made.op = ARITHMETIC[type(node.op)]()
        text = ast.unparse(made)
        yield node, text if isinstance(node, ast.AugAssign) else f"({text})"


def _drop_unary(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp):
        is_index = isinstance(node.operand, ast.Constant) and isinstance(
            _parent(node), (ast.Subscript, ast.Slice)
        )
        if not is_index:  # an index has mutations of its own
            yield node, _written(node.operand)


def _flip_junction(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        made = copy.copy(node)
        made.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, f"({ast.unparse(made)})"


def _negate_condition(node: ast.AST) -> Iterator[Change]:
    conditions: list[ast.expr] = []
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        conditions = [node.test]
    elif isinstance(node, ast.comprehension):
        conditions = node.ifs
    for condition in conditions:
        has_its_own = isinstance(condition, (ast.Compare, ast.UnaryOp))
        if not (has_its_own and len(getattr(condition, "ops", "1")) == 1):
            yield condition, f"(not {_written(condition)})"


def _remove_statement(node: ast.AST) -> Iterator[Change]:
    if _is_removable(node):
        yield node, "pass"
    elif isinstance(node, ast.Continue):
        yield node, "break"
    elif isinstance(node, ast.Break):
        yield node, "continue"
    elif isinstance(node, ast.If):
        for child in node.body:
            if isinstance(child, ast.Raise):
                yield child, "pass"


def _is_removable(node: ast.AST) -> TypeGuard[ast.stmt]:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, (ast.Call, ast.Await))
    return isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Assign) and _is_remembered(node)
    )


def _is_remembered(node: ast.Assign) -> bool:
    """Tell whether the program runs without it: the target had a value, or is an attribute."""
    targets = [
        each
        for target in node.targets
        for each in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    if not all(isinstance(target, ast.Name) for target in targets):
        return not isinstance(_parent(node), ast.Module)
    function = next((each for each in _parents(node) if isinstance(each, ast.FunctionDef)), None)
    if function is None:
        return False
    named = {target.id for target in targets if isinstance(target, ast.Name)}
    parameters = {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
    earlier = {
        each.id
        for each in ast.walk(function)
        if isinstance(each, ast.Name)
        and isinstance(each.ctx, ast.Store)
        and each.lineno < node.lineno
    }
    return named <= parameters | earlier


def _swap_function(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Name) and function.id in NAMES:
            yield function, NAMES[function.id]
        elif isinstance(function, ast.Attribute) and function.attr in NAMES:
            yield function, f"{_written(function.value)}.{NAMES[function.attr]}"


def _first_for_last(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Subscript):
        text = ast.unparse(node.slice)
        if text in ("0", "-1"):
            yield node.slice, "-1" if text == "0" else "0"


def _open_slice(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Slice) and not isinstance(getattr(_parent(node), "ctx", None), ast.Del):
        for bound in ("lower", "upper", "step"):
            if getattr(node, bound) is not None:
                made = copy.copy(node)
                setattr(made, bound, None)
                yield node, ast.unparse(made)  # type: ignore[misc]


def _return_argument(node: ast.AST) -> Iterator[Change]:
    """Use what a function was given in place of its result."""
    if not isinstance(node, ast.Call):
        return
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    is_returned = isinstance(_parent(node), ast.Return)
    if not (is_returned or name in UNCHANGED):
        return
    if node.args and isinstance(node.args[0], (ast.Name, ast.Attribute, ast.Subscript)):
        yield node, ast.unparse(node.args[0])
    elif isinstance(node.func, ast.Attribute) and name in UNCHANGED:
        yield node, _written(node.func.value)


def _drop_keyword(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Call):
        for place, keyword in enumerate(node.keywords):
            if keyword.arg not in UNTOUCHED:
                made = copy.copy(node)
                made.keywords = node.keywords[:place] + node.keywords[place + 1 :]
                yield node, ast.unparse(made)


OPERATORS: tuple[Callable[[ast.AST], Iterator[Change]], ...] = (
    _flip_comparison,
    _change_constant,
    _change_arithmetic,
    _drop_unary,
    _flip_junction,
    _negate_condition,
    _remove_statement,
    _swap_function,
    _first_for_last,
    _open_slice,
    _return_argument,
    _drop_keyword,
)
