"""`gym:` — every environment registered with Gymnasium, MuJoCo's included.

`gym:CartPole-v1` names one of the registry; `gym:package:Name-v0` imports the package first, so
that it can register its own. An id without a version means the newest. Options are the time limit
and whatever the environment's constructor takes.

To know a constructor its module is imported when the name is checked, and with it the simulator
where the module imports that; where the simulator is not installed, its source is read instead.
Gymnasium's own wrappers that check and count every step are left out: the adapter counts, and
`hts-check` is there to check.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import os
import re
from collections.abc import Sequence
from typing import Annotated, Any

from hts_envs import quiet
from hts_envs.contract import Place, World
from hts_envs.errors import BadName, BrokenSimulator, MissingPackages, WorldError, install_command
from hts_envs.options import Range, option
from hts_envs.registry import Family, Spec
from hts_envs.signature import Signature, signature_of
from hts_envs.source import declared
from hts_envs.spelling import hint

LIMIT = "max_episode_steps"
WITHOUT = ("render_mode", LIMIT)
_EXTRAS = {"mujoco": "mujoco", "imageio": "mujoco", "ale_py": "atari"}
_EXAMPLES = ("classic_control", "toy_text", "box2d", "mujoco")


class GymFamily(Family):
    name = "gym"
    summary = "any environment registered with Gymnasium: classic control, Box2D, MuJoCo, ..."
    open_ended = True

    def names(self) -> Sequence[str]:
        """Gymnasium's own, the newest version of each."""
        import gymnasium

        newest: dict[str, str] = {}
        for found in gymnasium.registry.values():
            folders = str(found.entry_point).split(".")
            if found.namespace is None and folders[2:3] and folders[2] in _EXAMPLES:
                newest[found.name] = found.id
        return sorted(newest.values())

    def resolve(self, name: str) -> str:
        module, _, identifier = name.rpartition(":")
        if not identifier:
            raise BadName("gym: names no environment: write for example gym:CartPole-v1")
        if module:
            _register(module)
        return f"{module}:{_known(identifier)}" if module else _known(identifier)

    def options(self, name: str) -> type[Any]:
        return _record(name)

    def make(self, spec: Spec, place: Place) -> World:
        import gymnasium

        from hts_envs.adapter import GymWorld

        owner = f"gym:{spec.name}"
        given = _signature(spec.name).arguments(spec.options, place)
        limit: int | None = getattr(spec.options, LIMIT)
        bare = copy.copy(_spec(spec.name))
        bare.order_enforce = False
        if place.shown and _draws(bare.entry_point):
            given["render_mode"] = "rgb_array"
            _without_display()
        try:
            with quiet.building():
                env = gymnasium.make(bare, max_episode_steps=-1, disable_env_checker=True, **given)
        except Exception as error:
            raise _refusal(owner, error) from error
        return GymWorld(env, owner, limit)


def _without_display() -> None:
    """How MuJoCo and pygame are told to draw where nobody looks, and to greet nobody."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")


def _draws(entry: Any) -> bool:
    """Whether an environment can hand out pictures of itself."""
    from gymnasium.envs.registration import load_env_creator

    called = entry if callable(entry) else load_env_creator(entry)
    return "rgb_array" in (getattr(called, "metadata", None) or {}).get("render_modes", ())


def _spec(name: str) -> Any:
    """Gymnasium's own record of a name that was resolved."""
    import gymnasium

    module, _, identifier = name.rpartition(":")
    if module:
        _register(module)
    return gymnasium.spec(identifier)


def _register(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadName(f"gym: there is no package {module!r} that could be imported") from None
        raise _refusal(f"gym: the package {module}", error) from error
    except Exception as error:
        raise _refusal(f"gym: the package {module}", error) from error


def _known(identifier: str) -> str:
    """The id in Gymnasium's registry; the newest version where none is given."""
    import gymnasium
    from gymnasium.envs.registration import find_highest_version, get_env_id, parse_env_id

    if identifier in gymnasium.registry:
        return identifier
    try:
        namespace, name, version = parse_env_id(identifier)
    except gymnasium.error.Error:
        raise BadName(
            f"gym: {identifier!r} is not an id: write Name-v1 or namespace/Name-v1"
        ) from None
    newest = find_highest_version(namespace, name)
    if newest is None:
        raise BadName(
            f"gym: there is no environment {identifier!r}{hint(identifier, gymnasium.registry)}"
            + _unimported(namespace, identifier)
        )
    latest = get_env_id(namespace, name, newest)
    if version is None:
        return latest
    raise BadName(f"gym: there is no environment {identifier!r} (did you mean {latest!r}?)")


def _unimported(namespace: str | None, identifier: str) -> str:
    import gymnasium

    known = {found.namespace for found in gymnasium.registry.values()}
    if namespace is None or namespace in known:
        return ""
    return f"; if a package registers it, name that too: gym:package:{identifier}"


@functools.cache
def _signature(name: str) -> Signature:
    from gymnasium.envs.registration import load_env_creator

    owner = f"gym:{name}"
    found = _spec(name)
    entry = found.entry_point
    try:
        called = entry if callable(entry) else load_env_creator(entry)
    except Exception as error:
        if _absent_package(error) is None:
            raise _refusal(owner, error) from error
        called = declared(entry)
    return signature_of(called, owner, without=WITHOUT, defaults=found.kwargs)


@functools.cache
def _record(name: str) -> type[Any]:
    limit = option(_spec(name).max_episode_steps, "steps after which an episode is truncated")
    return dataclasses.make_dataclass(
        "Options",
        [(LIMIT, Annotated[int, Range(1)] | None, limit)],
        bases=(_signature(name).record(isolates=True),),
        frozen=True,
    )


def _refusal(owner: str, error: Exception) -> WorldError:
    """One sentence for what kept Gymnasium from building an environment."""
    import gymnasium

    package = _absent_package(error)
    if package is None and isinstance(error, (ImportError, gymnasium.error.Error)):
        return BadName(f"{owner} cannot be built: {_first_line(error)}")
    if package is None:
        return BrokenSimulator(f"{owner} could not be built: {_first_line(error)}")
    if package in _EXTRAS:
        command = install_command(_EXTRAS[package])
    else:
        told = re.findall(r"`(pip install [^`]*)`", str(error))
        command = " && ".join(told) or f"pip install {package}"
    return MissingPackages(
        f"{owner}: needs {package}, which is not installed here. Install it with: {command}"
    )


def _absent_package(error: BaseException | None) -> str | None:
    """The package whose import failed, wherever in the chain of errors that was."""
    while error is not None:
        if isinstance(error, ImportError) and error.name:
            return error.name.partition(".")[0]
        error = error.__cause__ or error.__context__
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


FAMILY = GymFamily()
