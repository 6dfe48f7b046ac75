"""`python:` — a simulator of one's own, through a function or class that builds it.

    python:package.module:factory?x=1&port=[5001,5002]

The module is imported, from the current directory too, and the factory is called with the options
as keyword arguments; `hts_envs.signature` says how they are typed and how a value in square
brackets gives each replica its own. A factory that has parameters `seed`, `replica` or `replicas`
is told its place through them, so a simulator that must be seeded when it is built can be.

It may return a `World`, anything with Gymnasium's interface or Gym's before it, or, for many
replicas behind one call, a `BatchedWorld` or a `gymnasium.vector.VectorEnv`. Whether a world is
batched must be known before it is built, so a factory says it in its return annotation
(`-> BatchedWorld`, `-> gymnasium.vector.VectorEnv`, or a subclass); a class says it by what it is.
Without an annotation such an object is recognised when it is built: each replica has one of its
own, with one row, which is correct and slower than one call for all of them.
"""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, get_origin

from hts_envs import quiet
from hts_envs.contract import BatchedWorld, Place, World
from hts_envs.errors import BadName, BrokenSimulator, MissingPackages, WorldError
from hts_envs.options import either
from hts_envs.registry import Family, Spec
from hts_envs.signature import Signature, hints_of, signature_of
from hts_envs.spelling import hint

FORM = "python:package.module:factory"
_SHORT = 40  # letters of a value that a message shows
_INTERFACE = ("reset", "step", "observation_space", "action_space")


class PythonFamily(Family):
    name = "python"
    summary = f"a simulator of your own: {FORM}"
    open_ended = True

    def names(self) -> Sequence[str]:
        return ("gymnasium.envs.classic_control.cartpole:CartPoleEnv",)

    def resolve(self, name: str) -> str:
        _load(name)
        return name

    def options(self, name: str) -> type[Any]:
        return _record(name)

    def batched(self, spec: Spec) -> bool:
        return _announces_batch(_load(spec.name))

    def make(self, spec: Spec, place: Place) -> World | BatchedWorld:
        owner = f"python:{spec.name}"
        factory = _load(spec.name)
        signature = _signature(spec.name)
        given = signature.arguments(spec.options, place)
        if place.shown and any(each.name == "render_mode" for each in signature.parameters):
            given.setdefault("render_mode", "rgb_array")
        try:
            with quiet.building():
                found = factory(**given)
        except WorldError:
            raise
        except (Exception, SystemExit) as error:
            raise BrokenSimulator(
                f"{owner}: the factory raised {type(error).__name__}: {error}"
            ) from error
        if _announces_batch(factory):
            return _batched(found, owner, place)
        return _single(found, owner)


def _load(name: str) -> Callable[..., Any]:
    """The factory of this name."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise BadName(f"python:{name} names no factory: write {FORM}")
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise BadName(f"python:{name}: write python:{dotted}:{path}, without .py")
    found: Any = _module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            public = [known for known in vars(found) if not known.startswith("_")]
            raise BadName(f"python:{name}: {module_name} has no {path!r}{hint(part, public)}")
        found = getattr(found, part)
    if not callable(found):
        raise BadName(
            f"python:{name} is {_named(found)}, not a function or class that builds environments"
        )
    return found  # type: ignore[no-any-return]


def _module(name: str) -> Any:
    if name in sys.modules:
        return sys.modules[name]
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    quiet.silence_gym()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise BadName(f"python: there is no module {name!r}{_similar(name, here)}") from None
        raise MissingPackages(
            f"python: {name} needs {error.name}, which is not installed here. "
            f"Install it with: pip install {(error.name or '').partition('.')[0]}"
        ) from error
    except (Exception, SystemExit) as error:
        raise BrokenSimulator(
            f"python: importing {name} raised {type(error).__name__}: {error}"
        ) from error


def _similar(name: str, folder: str) -> str:
    """A hint at the modules of the current directory, or beside the one that is missing."""
    parent, _, last = name.rpartition(".")
    above = sys.modules.get(parent) if parent else None
    if parent and above is None:
        return ""
    paths = list(above.__path__) if above and hasattr(above, "__path__") else [folder]
    return hint(last, [found.name for found in pkgutil.iter_modules(paths)])


@functools.cache
def _signature(name: str) -> Signature:
    factory = _load(name)
    return signature_of(factory, f"python:{name}", spread=not _announces_batch(factory))


@functools.cache
def _record(name: str) -> type[Any]:
    return _signature(name).record(isolates=not _announces_batch(_load(name)))


def _announces_batch(factory: Callable[..., Any]) -> bool:
    """Does the factory say that it returns a batched world?"""
    promised = factory if isinstance(factory, type) else hints_of(factory).get("return")
    promised = get_origin(promised) or promised  # VectorEnv[Any, Any, Any] is a VectorEnv
    return isinstance(promised, type) and issubclass(promised, (BatchedWorld, *_vector_classes()))


def _vector_classes() -> tuple[type[Any], ...]:
    from gymnasium.vector import VectorEnv

    return (VectorEnv,)


def _single(found: Any, owner: str) -> World:
    from hts_envs.adapter import GymWorld
    from hts_envs.vector import SingleRow

    if isinstance(found, World):
        return found
    if isinstance(found, (BatchedWorld, *_vector_classes())):
        return SingleRow(_many(found, owner, Place()))
    absent = [part for part in _INTERFACE if not hasattr(found, part)]
    if not absent:
        return GymWorld(found, owner)
    if found is None:
        raise BadName(f"{owner}: the factory returned nothing: is a `return` missing?")
    raise BadName(
        f"{owner}: the factory returned {_named(found)}, which is no environment: it has no "
        f"{either(absent)}"
    )


def _batched(found: Any, owner: str, place: Place) -> BatchedWorld:
    """Return what a factory made that announces many replicas behind one call."""
    if not isinstance(found, (BatchedWorld, *_vector_classes())):
        raise BadName(
            f"{owner}: the factory returned {_named(found)}, but its annotation promises many "
            "replicas; correct the annotation, or return a BatchedWorld or a VectorEnv"
        )
    return _many(found, owner, place)


def _many(found: Any, owner: str, place: Place) -> BatchedWorld:
    """Return many replicas behind one call, recognised by the object itself."""
    from hts_envs.vector import VectorWorld

    if not isinstance(found, BatchedWorld):
        found = VectorWorld(found, owner)
    if found.replicas != place.replicas:
        raise BadName(
            f"{owner}: the factory was asked for {_count(place.replicas)}, but returned "
            f"{found.replicas}; give it a parameter `replicas`, build that many, and annotate its "
            "return type, as in `def factory(replicas: int) -> gymnasium.vector.VectorEnv:`"
        )
    assert isinstance(found, BatchedWorld), "a vector environment is adapted above"
    return found


def _named(found: Any) -> str:
    """Return what a message calls an object: its value where that is short, and its class."""
    kind, text = type(found).__name__, repr(found)
    plain = isinstance(found, (bool, int, float, str, bytes)) and len(text) <= _SHORT
    return f"{text} ({kind})" if plain else f"an object of class {kind}"


def _count(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


FAMILY = PythonFamily()
