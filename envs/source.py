"""The signature of a constructor, read from its source where its module cannot be imported.

A module of a simulator that is not installed fails on import, but what its class can be given
stands in its text. Only defaults written as literals are known then; a parameter with any other
is left out, as one that cannot be typed.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

_UNKNOWN = object()
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def declared(entry_point: str) -> Callable[..., Any]:
    """A stand-in for `package.module:name` that has its signature and cannot be called."""
    module, _, name = entry_point.partition(":")
    constructor = _constructor(module, name)
    if constructor is None:
        return _stand_in([], {}, takes_any=True)
    return _described(constructor.args)


def _constructor(module: str, name: str) -> ast.FunctionDef | None:
    top, *rest = module.split(".")
    found = importlib.util.find_spec(top)  # of a package's module it would import the package
    for folder in (found.submodule_search_locations if found else None) or []:
        path = Path(folder, *rest).with_suffix(".py")
        if path.is_file():
            return _find(ast.parse(path.read_text(encoding="utf-8")), name)
    return None


def _find(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            return next((part for part in methods if part.name == "__init__"), None)
    return None


def _described(arguments: ast.arguments) -> Callable[..., Any]:
    plain = arguments.posonlyargs + arguments.args
    needed = len(plain) - len(arguments.defaults)
    defaults = [*[None] * needed, *arguments.defaults, *arguments.kw_defaults]
    pairs = zip(plain + arguments.kwonlyargs, defaults, strict=True)
    known = []
    notes = {}
    for argument, given in pairs:
        default = inspect.Parameter.empty if given is None else _literal(given)
        if argument.arg == "self" or default is _UNKNOWN:
            continue
        known.append(inspect.Parameter(argument.arg, _KEYWORD, default=default))
        if argument.annotation is not None:
            notes[argument.arg] = ast.unparse(argument.annotation)
    return _stand_in(known, notes, takes_any=arguments.kwarg is not None)


def _literal(given: ast.expr) -> Any:
    try:
        return ast.literal_eval(given)
    except ValueError:
        return _UNKNOWN


def _stand_in(
    known: list[inspect.Parameter], notes: dict[str, str], *, takes_any: bool
) -> Callable[..., Any]:
    def stand_in(**given: Any) -> Any:
        raise NotImplementedError("a signature that was read from source cannot be called")

    if takes_any:
        known = [*known, inspect.Parameter("given", inspect.Parameter.VAR_KEYWORD)]
    stand_in.__signature__ = inspect.Signature(known)  # type: ignore[attr-defined]
    stand_in.__annotations__ = notes
    return stand_in
