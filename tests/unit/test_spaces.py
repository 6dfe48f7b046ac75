"""Spaces of Gymnasium become the contract's, and values travel through them unharmed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from hts_envs.adapter import GymWorld
from hts_envs.contract import Array, Box, Discrete, MultiDiscrete, Space
from hts_envs.errors import BadName, BrokenSimulator
from hts_envs.images import channel_axis
from hts_envs.spaces import Actions, Observations, leaves
from tests.fakes.gym_worlds import Canned, Spaced

BUTTON = spaces.Discrete(2)


def boxes() -> st.SearchStrategy[Any]:
    shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
    floats = st.builds(
        lambda shape, dtype: spaces.Box(-1.5, 2.5, shape, dtype),
        shapes,
        st.sampled_from([np.float16, np.float32, np.float64]),
    )
    pixels = shapes.map(lambda shape: spaces.Box(0, 255, shape, np.uint8))
    return floats | pixels


def plain() -> st.SearchStrategy[Any]:
    counts = st.lists(st.integers(1, 5), min_size=1, max_size=3)
    return st.one_of(
        boxes(),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), STARTS),
        st.builds(
            lambda nvec, start: spaces.MultiDiscrete(nvec, start=[start] * len(nvec)),
            counts,
            STARTS,
        ),
        st.integers(1, 4).map(spaces.MultiBinary),
        st.builds(lambda n: spaces.MultiDiscrete([[n, 2], [3, n]]), st.integers(1, 5)),
    )


def trees() -> st.SearchStrategy[Any]:
    keys = st.text("abc", min_size=1, max_size=3)
    return st.recursive(
        plain(),
        lambda inner: st.one_of(
            st.dictionaries(keys, inner, min_size=1, max_size=3).map(spaces.Dict),
            st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        ),
        max_leaves=6,
    )


STARTS = st.integers(-5, 5)


def rebuilt(space: Any, fields: dict[str, Array], name: str = "") -> Any:
    """The slow way back: the observation a space would hold, out of the world's named fields."""
    dotted = f"{name}." if name else ""
    if isinstance(space, spaces.Dict):
        return {key: rebuilt(part, fields, f"{dotted}{key}") for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rebuilt(part, fields, f"{dotted}{i}") for i, part in enumerate(space))
    field = fields[name or "observation"]
    assert field.shape[0] == 1
    start = getattr(space, "start", 0)
    return (field[0] + start).astype(space.dtype)


def flat(value: Any) -> list[Array]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in flat(value[key])]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in flat(part)]
    return [np.asarray(value)]


def inside(field: Array, space: Space) -> bool:
    if isinstance(space, Discrete):
        return bool((field >= 0).all() and (field < space.n).all())
    if isinstance(space, MultiDiscrete):
        return bool((field >= 0).all() and (field < np.array(space.nvec)).all())
    return bool((field >= np.array(space.low)).all() and (field <= np.array(space.high)).all())


@settings(max_examples=150, deadline=None)
@given(trees(), st.integers(0, 2**32 - 1))
def test_every_observation_survives_flattening(space: Any, seed: int) -> None:
    """Named fields hold, within their declared spaces, exactly what the nested observation held."""
    space.seed(seed)
    shown = space.sample()
    observations = Observations(space, "x")
    fields = observations.read(shown)
    assert list(fields) == list(observations.spaces)
    for name, field in fields.items():
        declared = observations.spaces[name]
        assert field.shape == (1, *declared.shape)
        assert field.dtype == declared.dtype
        assert inside(field, declared)
    for back, original in zip(flat(rebuilt(space, fields)), flat(shown), strict=True):
        expected = original.astype(np.float32) if original.dtype.kind == "f" else original
        assert np.array_equal(back.astype(expected.dtype), expected)


@settings(max_examples=50, deadline=None)
@given(trees(), st.integers(0, 2**32 - 1))
def test_what_was_read_shares_no_memory(space: Any, seed: int) -> None:
    """Overwriting the simulator's own arrays changes nothing that was handed out (rule 10)."""
    space.seed(seed)
    shown = space.sample()
    fields = Observations(space, "x").read(shown)
    kept = {name: field.copy() for name, field in fields.items()}
    for array in flat(shown):
        if array.flags.writeable:
            array[...] = 1 - array
    assert all(np.array_equal(fields[name], kept[name]) for name in kept)


def test_nested_fields_have_dotted_names_and_members_have_numbers() -> None:
    """Keys and numbers on the way to a leaf make its name, in the space's order."""
    space = spaces.Dict(
        {"pose": spaces.Tuple((BUTTON, spaces.Dict({"x": BUTTON}))), "button": BUTTON}
    )
    assert [leaf.name for leaf in leaves(space, "x")] == ["button", "pose.0", "pose.1.x"]


def test_a_plain_space_is_called_observation() -> None:
    """A single space that is not nested has the contract's own name."""
    assert [leaf.name for leaf in leaves(BUTTON, "x")] == ["observation"]


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 255, (2, 3), np.uint8), Box((2, 3), "uint8", 0.0, 255.0)),
        (spaces.Box(-np.inf, np.inf, (2,), np.float64), Box((2,), "float32")),
        (
            spaces.Box(np.array([0.0, -1.0]), np.array([1.0, 1.0]), dtype=np.float64),
            Box((2,), "float32", (0.0, -1.0), 1.0),
        ),
        (spaces.Box(0.0, 1e300, (), np.float64), Box((), "float32", 0.0, np.inf)),
        (spaces.Box(0.0, 1.0, (0,), np.float32), Box((0,), "float32", 0.0, 0.0)),
        (spaces.Discrete(3, start=-1), Discrete(3)),
        (spaces.MultiDiscrete([2, 3]), MultiDiscrete((2, 3))),
        (spaces.MultiDiscrete([[2], [3]]), Box((2, 1), "int64", 0.0, ((1.0,), (2.0,)))),
        (spaces.MultiBinary((2, 2)), Box((2, 2), "int8", 0.0, 1.0)),
    ],
)
def test_observation_spaces(space: Any, expected: Space) -> None:
    """Each plain space becomes its literal counterpart; uniform bounds become scalars."""
    assert leaves(space, "x")[0].space == expected


@pytest.mark.parametrize(
    ("space", "word"),
    [
        (spaces.Text(5), "Text"),
        (spaces.Sequence(BUTTON), "Sequence"),
        (spaces.Graph(BUTTON, None), "Graph"),
        (spaces.OneOf((BUTTON, BUTTON)), "OneOf"),
        (object(), "object"),
    ],
)
def test_spaces_without_a_fixed_shape_are_refused(space: Any, word: str) -> None:
    """One sentence names the part and its space."""
    holder: Any = spaces.Dict({"note": BUTTON})
    holder.spaces["note"] = space
    with pytest.raises(BadName, match=rf"^x: the part 'note' .* is a {word} space"):
        leaves(holder, "x")


def test_two_fields_of_one_name_are_refused() -> None:
    """A dotted key that collides with a nested one is not silently overwritten."""
    space = spaces.Dict({"a.b": BUTTON, "a": spaces.Dict({"b": BUTTON})})
    with pytest.raises(BadName, match=r"both be called 'a\.b'"):
        leaves(space, "x")


def test_an_empty_observation_is_refused() -> None:
    """A tree without leaves is no observation."""
    with pytest.raises(BadName, match="nothing to learn from"):
        leaves(spaces.Dict({}), "x")


@pytest.mark.parametrize(
    ("space", "declared", "action", "expected"),
    [
        (spaces.Discrete(3), Discrete(3), np.array([2]), 2),
        (spaces.Discrete(3, start=-1), Discrete(3), np.array([2]), 1),
        (spaces.MultiDiscrete([2, 3]), MultiDiscrete((2, 3)), np.array([[1, 2]]), np.array([1, 2])),
        (
            spaces.MultiDiscrete([2, 3], start=[5, -5]),
            MultiDiscrete((2, 3)),
            np.array([[1, 2]]),
            np.array([6, -3]),
        ),
        (
            spaces.MultiBinary(2),
            MultiDiscrete((2, 2)),
            np.array([[1, 0]]),
            np.array([1, 0], np.int8),
        ),
        (
            spaces.Box(-1.0, 1.0, (2,), np.float64),
            Box((2,), "float32", -1.0, 1.0),
            np.array([[0.5, -0.5]], np.float32),
            np.array([0.5, -0.5], np.float32),
        ),
        (
            spaces.Box(-1.0, 1.0, (), np.float32),
            Box((), "float32", -1.0, 1.0),
            np.array([0.5], np.float32),
            np.array(0.5, np.float32),
        ),
    ],
)
def test_actions(space: Any, declared: Space, action: Array, expected: Any) -> None:
    """The contract's action becomes a member of the environment's space, of the right type."""
    env = Spaced(BUTTON, space)
    world = GymWorld(env, "x")
    assert world.spaces.action == declared
    world.reset(0)
    world.step(action)
    (taken,) = env.actions
    assert type(taken) is type(expected)
    assert np.array_equal(taken, expected)
    if isinstance(expected, np.ndarray):
        assert taken.dtype == expected.dtype
        assert taken.shape == expected.shape
        assert not np.shares_memory(taken, action)
        assert Actions(space, "x").batch(np.array([action, action])).shape == (2, *taken.shape)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict({"a": BUTTON}), "a Dict"),
        (spaces.Tuple((BUTTON,)), "a Tuple"),
        (spaces.MultiDiscrete([[2, 2], [2, 2]]), "a nested MultiDiscrete"),
        (spaces.MultiBinary((2, 2)), "a nested MultiBinary"),
        (spaces.Box(0, 9, (2,), np.int64), "a Box of int64"),
        (spaces.Text(3), "a Text"),
    ],
)
def test_other_action_spaces_are_refused(space: Any, words: str) -> None:
    """One sentence says what the action space is and which ones will do."""
    with pytest.raises(BadName, match=f"its action space is {words}: only Discrete"):
        Actions(space, "x")


@pytest.mark.parametrize(
    ("shown", "got"),
    [
        (np.zeros(3, np.float32), r"float32\[3\]"),
        (np.zeros((1, 2), np.float32), r"float32\[1, 2\]"),
        (np.zeros(2, np.complex64), r"complex64\[2\]"),
        (None, r"object\[\]"),
    ],
)
def test_an_observation_of_another_shape_or_kind_is_refused(shown: Any, got: str) -> None:
    """Field, expected and got are named, at a reset and at a step."""
    sentence = rf"field 'observation' .* declared as float32\[2\], but came as {got}"
    with pytest.raises(BrokenSimulator, match=sentence):
        GymWorld(Canned(reset=(shown, {})), "x").reset(0)
    world = GymWorld(Canned(step=(shown, 0.0, False, False, {})), "x")
    world.reset(0)
    with pytest.raises(BrokenSimulator, match=sentence):
        world.step(np.zeros(1, np.int64))


def test_floats_where_whole_numbers_are_declared_are_refused() -> None:
    """An image of floats is not cut down to uint8 without a word."""
    observations = Observations(spaces.Box(0, 255, (2,), np.uint8), "x")
    with pytest.raises(BrokenSimulator, match=r"declared as uint8\[2\], but came as float64\[2\]"):
        observations.read(np.array([0.5, 0.5]))


def test_a_missing_part_is_named() -> None:
    """A dict without a declared key is the simulator's fault, and is said to be."""
    observations = Observations(spaces.Dict({"a": BUTTON, "b": spaces.Tuple((BUTTON,))}), "x")
    with pytest.raises(BrokenSimulator, match=r"has no 'b\.0'"):
        observations.read({"a": 0, "b": ()})


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 96, 96), "first"),
        ((1, 84, 84), "first"),
        ((4, 10, 10), "first"),
        ((3, 48, 160), "first"),
        ((96, 96, 3), "last"),
        ((84, 84, 1), "last"),
        ((72, 96, 4), "last"),
        ((72, 96, 16), "last"),
        ((10, 10, 10), "last"),
        ((1, 64, 3), "last"),
        ((9, 84, 84), "unclear"),
        ((2, 36, 36), "unclear"),
        ((3, 5, 5), "unclear"),
    ],
)
def test_channels_are_told_from_pixels(shape: tuple[int, int, int], axis: str) -> None:
    """Few channels stand before many pixels, or behind them; anything else is not guessed."""
    assert channel_axis(shape) == axis


def test_an_image_with_its_channels_first_is_transposed() -> None:
    """Its space with the bounds of each number, what is read of it, and a sentence about it."""
    high = np.arange(3 * 8 * 9, dtype=np.uint8).reshape(3, 8, 9)
    camera = spaces.Box(np.zeros((3, 8, 9), np.uint8), high, dtype=np.uint8)
    both = spaces.Dict({"camera": camera, "speed": spaces.Box(-1, 1, (2,), np.float32)})
    env = Spaced(both, spaces.Discrete(2))
    world = GymWorld(env, "mine")
    declared = world.spaces.observation["camera"]
    assert isinstance(declared, Box)
    assert declared.shape == (8, 9, 3)
    assert np.array_equal(np.array(declared.high), np.moveaxis(high, 0, -1))
    assert world.spaces.observation["speed"] == Box((2,), "float32", -1.0, 1.0)
    seen = world.reset(0)["camera"]
    assert seen.flags.c_contiguous
    assert np.array_equal(seen[0], np.moveaxis(env.shown[0]["camera"], 0, -1))
    assert "camera is an image of 3x8x9 with its channels first" in world.description
    many = Observations(camera, "mine", replicas=5)
    rows = np.stack([camera.sample() for _ in range(5)])
    assert np.array_equal(many.read(rows)["observation"][:, 0], np.moveaxis(rows, 1, -1))


def test_other_boxes_are_left_as_they_are() -> None:
    """Planes of floats, and images with their channels last."""
    for space in (
        spaces.Box(0, 1, (3, 96, 96), np.float32),
        spaces.Box(0, 9, (96, 96, 3), np.uint8),
    ):
        found = Observations(space, "mine")
        assert found.spaces["observation"].shape == space.shape
        assert found.note == ""
