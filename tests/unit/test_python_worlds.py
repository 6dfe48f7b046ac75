"""`python:` names, options and worlds, single and batched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hts_envs.adapter import GymWorld
from hts_envs.contract import BatchedWorld, Observation, Place, World
from hts_envs.errors import BadName, BadOption, BrokenSimulator, MissingPackages
from hts_envs.options import describe
from hts_envs.registry import family, make, parse
from hts_envs.vector import SingleRow
from tests.fakes.factories import Many, Plain

FAKES = "python:tests.fakes.factories:"


def told(name: str, place: Place = Place()) -> dict[str, Any]:
    """What the factory built its environment with."""
    world: Any = make(FAKES + name, place)
    assert isinstance(world, GymWorld)
    found = world._env.told
    assert isinstance(found, dict)
    return found


def several(name: str, replicas: int) -> BatchedWorld:
    world = make(FAKES + name, Place(replicas=replicas))
    assert isinstance(world, BatchedWorld)
    return world


# Options


def test_options_are_typed_by_annotations() -> None:
    """Every kind of annotation that can be typed arrives as what it says."""
    query = "x=5e1&rate=2&fast=yes&label=7&mode=hard&sizes=4,4,4&names=a,b&limit=9"
    assert told(f"typed?{query}") == {
        "x": 50,
        "rate": 2.0,
        "fast": True,
        "label": "7",
        "mode": "hard",
        "sizes": (4, 4, 4),
        "names": ["a", "b"],
        "limit": 9,
    }


def test_defaults_are_the_factory_s_own() -> None:
    """What was not given is not passed, and the record shows what it will be."""
    given = told("typed")
    assert given["sizes"] == (8, 8)
    assert given["names"] is None
    shown = {
        option.name: option.default for option in describe(type(parse(FAKES + "typed").options))
    }
    assert shown["rate"] == "0.5"
    assert shown["sizes"] == "8,8"


def test_options_without_annotations_are_typed_by_defaults() -> None:
    """A default tells the type; JSON stands for the rest; what cannot be written is not offered."""
    given = told('untyped?port=1&count=3&table={"b": [2, 3]}&odd=1.5')
    assert given == {"port": 1, "host": "here", "count": 3, "table": {"b": [2, 3]}, "odd": 1.5}
    assert told("untyped?port=com1")["port"] == "com1"
    assert told("untyped?port=none")["port"] is None
    with pytest.raises(BadOption, match="option count must be a whole number"):
        parse(FAKES + "untyped?port=1&count=many")
    with pytest.raises(BadOption, match="no option 'weird'"):
        parse(FAKES + "untyped?port=1&weird=1")


def test_annotations_for_checkers_only_do_no_harm() -> None:
    """Where one annotation names what is not there at run time, the others still count."""
    assert told("unreadable?x=4.5&later=true") == {"x": 4.5, "later": True}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("typed?rat=1", "has no option 'rat' .did you mean 'rate'"),
        ("typed?x=half", "option x must be a whole number"),
        ("typed?limit=0", "option limit must be none or a whole number from 1, not 0"),
        ("typed?mode=medium", "option mode must be easy or hard, not 'medium'"),
        ("untyped", "needs the option port"),
        ("placed?seed=1", "has no option 'seed'"),
        ("placed?replica=1", "has no option 'replica'"),
        ("placed?replicas=1", "has no option 'replicas'"),
        ("anything?keywords=[1]", "must be a JSON object"),
        ("anything?keywords={oops", "must be a JSON object"),
        ('anything?keywords={"x": 1, "seed": 2}', "cannot give seed, x"),
        ("many?replicas=3", "has no option 'replicas'"),
        ("Many?x=[1,2]", "option x must be a whole number"),
    ],
)
def test_bad_options(name: str, sentence: str) -> None:
    """Each is refused when the name is checked, before anything is built."""
    with pytest.raises(BadOption, match=sentence):
        parse(FAKES + name)


def test_further_keywords_are_json() -> None:
    """A factory with `**further` can be given what its signature does not name."""
    assert told('anything?keywords={"depth": 2, "name": "deep"}') == {
        "x": 1,
        "depth": 2,
        "name": "deep",
    }


def test_the_place_is_known_before_the_world_is_built() -> None:
    """Rule 17: `seed`, `replica` and `replicas` are given to the factory itself."""
    given = told("placed?x=2", Place(replica=5, replicas=1, seed=99))
    assert given == {"seed": 99, "replica": 5, "replicas": 1, "x": 2}


@pytest.mark.parametrize(
    ("query", "option", "values"),
    [
        ("x=[5,6]", "x", [5, 6, 5, 6]),
        ("rate=[0.5,1,2]", "rate", [0.5, 1.0, 2.0, 0.5]),
        ("label=[left, right]", "label", ["left", "right", "left", "right"]),
        ("mode=[hard,easy]", "mode", ["hard", "easy", "hard", "easy"]),
        ("limit=[1,none]", "limit", [1, None, 1, None]),
        ("x=[7]", "x", [7, 7, 7, 7]),
        ("sizes=[1,2]", "sizes", [(1, 2)] * 4),
    ],
)
def test_square_brackets_give_each_replica_its_own(
    query: str, option: str, values: list[Any]
) -> None:
    """Replica r takes entry r modulo the length; a parameter that is a list is everybody's."""
    found = [told(f"typed?{query}", Place(replica=r))[option] for r in range(4)]
    assert found == values


def test_square_brackets_without_annotation() -> None:
    """A parameter of no known type can have a value for each replica too."""
    found = [told("untyped?port=[5001,5002]", Place(replica=r))["port"] for r in range(3)]
    assert found == [5001, 5002, 5001]


@pytest.mark.parametrize(
    "name",
    ["typed", "typed?x=[1,2]&label=[a,b]&names=a,b", 'untyped?port=1&table={"a": 2}', "placed"],
)
def test_canonical_names_parse_to_the_same(name: str) -> None:
    """Every option spelled out is the same world again."""
    spec = parse(FAKES + name)
    assert parse(spec.canonical()) == spec


# Names


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("python:", "names no factory: write python:package.module:factory"),
        ("python:module", "names no factory"),
        ("python::f", "names no factory"),
        ("python:no_such_module:f", "there is no module 'no_such_module'"),
        ("python:no_such_package.inner:f", "there is no module 'no_such_package.inner'"),
        ("python:tests.fakes.factorys:typed", "did you mean 'factories'"),
        ("python:tests.fakes.factories:typedd", "did you mean 'typed'"),
        ("python:tests.fakes.factories:Many.rest", "did you mean 'reset'"),
        ("python:tests.fakes.factories:NUMBER", r"is 3 \(int\), not a function or class"),
        ("python:bad_envs.py:make", r"write python:bad_envs:make, without .py"),
        ("python:./sims/bad_envs.py:make", r"write python:sims.bad_envs:make, without .py"),
    ],
)
def test_bad_names(name: str, sentence: str) -> None:
    """What is missing is said, with the nearest right name where one is near."""
    with pytest.raises(BadName, match=sentence):
        parse(name)


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


def test_a_module_that_lacks_a_package_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed import inside the module is not mistaken for a module that is not there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "lacking_simulator", "import no_such_engine\n")
    with pytest.raises(MissingPackages, match="lacking_simulator needs no_such_engine"):
        parse("python:lacking_simulator:f")


def test_a_module_that_raises_says_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a module raises when imported is the cause of one sentence."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "raising_simulator", "raise OSError('no display')\n")
    with pytest.raises(BrokenSimulator, match="importing raising_simulator raised OSError: no"):
        parse("python:raising_simulator:f")


def test_the_current_directory_is_importable(tmp_path: Path) -> None:
    """A console script finds a simulator that lies where it was started, and near names too."""
    write(tmp_path, "mine", "from tests.fakes.gym_worlds import Counter\nmake = Counter\n")
    code = (
        "import sys; sys.path.remove('')\n"
        "import hts_envs\n"
        "print(type(hts_envs.make('python:mine:make')).__name__)\n"
        "try: hts_envs.parse('python:mein:make')\n"
        "except hts_envs.registry.BadName as error: print(error)"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        check=True,
    )
    assert done.stdout.startswith("GymWorld\n")
    assert "did you mean 'mine'" in done.stdout


def test_the_old_package_s_notice_is_not_shown(tmp_path: Path) -> None:
    """A module that prints gym's notice on import, as gym does, has nothing to print."""
    (tmp_path / "gym_notices").mkdir()
    write(tmp_path / "gym_notices", "__init__", "")
    write(tmp_path / "gym_notices", "notices", "notices = {'1': 'unmaintained'}\n")
    write(
        tmp_path,
        "oldest",
        "import gym_notices.notices as n\nif n.notices.get('1'): print('unmaintained')\n"
        "from tests.fakes.gym_worlds import Old as make\n",
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", "import hts_envs; hts_envs.make('python:oldest:make')"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        check=True,
    )
    assert done.stdout + done.stderr == ""


def test_listed_names_resolve() -> None:
    """The example that people are shown is a world."""
    for name in family("python").names():
        world = make(f"python:{name}")
        assert isinstance(world, World)
        assert world.reset(0)["observation"].shape == (1, 4)


# What factories return


def test_a_world_of_the_contract_is_taken_as_it_is() -> None:
    """A `World` is not wrapped: its own errors come through."""
    world = make(FAKES + "Plain?x=4")
    assert isinstance(world, Plain)
    assert world.x == 4
    with pytest.raises(RuntimeError, match="own error"):
        world.step(np.zeros(1))


def test_an_old_environment_is_adapted() -> None:
    """Gym's interface of before is read like today's."""
    world = make(FAKES + "old")
    assert isinstance(world, World)
    world.reset(0)
    assert world.step(np.zeros(1, np.int64)).reward.tolist() == [1.0]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("something", r"the factory returned 42 \(int\), which is no environment: it has no reset"),
        ("nothing", r"the factory returned nothing: is a `return` missing\?"),
        ("not_many", "returned an object of class Plain, but its annotation promises many"),
        ("always_two", "asked for 1 replica, but returned 2; give it a parameter `replicas`"),
        ("two_vectors", "asked for 1 replica, but returned 2"),
        ("secretly_two", "build that many, and annotate its return type"),
    ],
)
def test_other_things_are_refused(name: str, sentence: str) -> None:
    """One sentence says what came and what was expected."""
    with pytest.raises(BadName, match=sentence):
        make(FAKES + name)


def test_many_replicas_without_an_annotation_are_recognised() -> None:
    """`gym.make_vec` from a factory that does not announce it: a row for each replica, which shows
    what the announced one shows, and says how to have all of them in one call."""
    alone, together = make(FAKES + "secretly_vector"), several("vector", 1)
    assert isinstance(alone, SingleRow)
    assert "annotate the factory's return type" in alone.description
    rows, seeds = np.zeros(1, np.int64), np.array([7], np.uint64)
    assert same(alone.reset(7), {n: a[0] for n, a in together.reset(rows, seeds).items()})
    action = np.zeros((1, *alone.spaces.action.shape), alone.spaces.action.dtype)
    one, many = alone.step(action), together.step(action[None])
    assert same(one.observation, {n: a[0] for n, a in many.observation.items()})
    assert one.reward.tolist() == many.reward[0].tolist()
    assert (one.terminated, one.truncated) == (many.terminated[0], many.truncated[0])
    alone.close()
    together.close()
    assert isinstance(make(FAKES + "secretly_many"), SingleRow)


def same(one: Observation, other: Observation) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def test_a_factory_that_raises_is_named() -> None:
    """The simulator's own error is the cause; an error of ours is passed on as it is."""
    with pytest.raises(BrokenSimulator, match=r"failing: the factory raised Conn.*port 3") as info:
        make(FAKES + "failing?x=3")
    assert isinstance(info.value.__cause__, ConnectionError)
    with pytest.raises(BadOption, match=r"^two is too many$"):
        make(FAKES + "refusing")


@pytest.mark.parametrize(
    ("name", "batched"),
    [
        ("many", True),
        ("Many", True),
        ("vector", True),
        ("two_vectors", True),
        ("typed", False),
        ("Plain", False),
        ("unreadable", False),
        ("secretly_many", False),
    ],
)
def test_whether_a_world_is_batched_is_known_before(name: str, batched: bool) -> None:
    """The return annotation says it, or the class that is its own factory."""
    assert parse(FAKES + name).batched is batched


def test_a_batched_world_holds_the_replicas_it_was_asked_for() -> None:
    """`replicas` reaches a factory and a class alike."""
    for name in ("many", "Many?x=3"):
        world = several(name, 6)
        assert isinstance(world, Many)
        assert world.replicas == 6
