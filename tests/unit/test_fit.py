"""Models that cannot see a world are told so, with what would fit."""

from __future__ import annotations

import pytest

from hts.config import PQL, Conv, Experiment, Impala, Mlp, configure
from hts.models.fit import FOR_IMAGES, misfits, with_model
from hts.models.spaces import is_image, stacked, vector_width
from hts_envs.contract import Box, Discrete, MultiDiscrete, Space, Spaces
from tests.fakes.runs import experiment as small
from tests.fakes.runs import outcome

PLANES = Box((72, 96, 4), "uint8")
NUMBERS = Box((7,))
IMAGES = "sleeper:?mean=0&dtype=uint8"


def told(model: Mlp | Conv | Impala, stack: int = 1, **seen: Space) -> str:
    """What is said about this model and a world that shows this."""
    asked = Experiment(env="gym:CartPole-v1", model=model, frame_stack=stack)
    return " ".join(misfits(asked, Spaces(seen, Discrete(2))))


@pytest.mark.parametrize(
    ("model", "seen"),
    [
        (Mlp(), {"a": NUMBERS}),
        (Mlp(), {"a": NUMBERS, "b": Discrete(3), "c": MultiDiscrete((2, 2)), "d": Box(())}),
        (Mlp(), {"a": Box((8, 8, 3), "float32")}),
        (Conv(), {"a": PLANES}),
        (Conv(), {"a": PLANES, "b": NUMBERS}),
        (Conv(), {"a": Box((36, 36, 1), "uint8")}),
        (Impala(), {"a": Box((10, 10, 3), "uint8")}),
    ],
)
def test_what_fits(model: Mlp | Conv | Impala, seen: dict[str, Space]) -> None:
    """Nothing is said about a model that can see the world."""
    assert told(model, **seen) == ""


@pytest.mark.parametrize(
    ("model", "seen", "sentences"),
    [
        (Mlp(), {"a": PLANES}, ("shows images (a (72, 96, 4))", "--set model=conv")),
        (Conv(), {"a": NUMBERS}, ("conv sees one image", "shows no image", "--set model=mlp")),
        (Conv(), {"a": PLANES, "b": PLANES}, ("several images (a (72, 96, 4), b (72, 96, 4))",)),
        (Conv(), {"a": Box((35, 96, 4), "uint8")}, ("at least 36x36", "35x96", "model=impala")),
        (Impala(), {"a": NUMBERS}, ("impala sees one image", "--set model=mlp")),
    ],
)
def test_what_does_not_fit(
    model: Mlp | Conv | Impala, seen: dict[str, Space], sentences: tuple[str, ...]
) -> None:
    """One sentence says what is shown, what can be seen and what to type instead."""
    found = told(model, **seen)
    for sentence in sentences:
        assert sentence in found
    assert "gym:CartPole-v1" in found


def squashing(action: Space) -> str:
    """What is said about squashing these actions."""
    asked = Experiment(env="gym:Some-v0", squash=True)
    return " ".join(misfits(asked, Spaces({"a": NUMBERS}, action)))


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (Box((2,), "float32", -1.0, 1.0), ""),
        (Box((2,), "float32", (-1.0, 0.0), (1.0, 2.0)), ""),
        (Box((), "float32", 0.0, 2.0), ""),
        (Box((2,)), "lie between -inf and inf, and squashing needs a finite low"),
        (Box((2,), "float32", 0.0, (1.0, float("inf"))), "lie between 0.0 and (1.0, inf)"),
        (Box((2,), "float32", -3e38, 3e38), "squashing needs a finite low"),
        (Box((2,), "float32", (0.0, 1.0), 1.0), "a finite high above it everywhere"),
        (Discrete(4), "are choices (Discrete(n=4))"),
        (MultiDiscrete((2, 3)), "leave it out"),
    ],
)
def test_what_can_be_squashed(action: Space, sentence: str) -> None:
    """Continuous actions with finite bounds; of any others one sentence says what they are."""
    found = squashing(action)
    assert sentence in found
    assert bool(found) == bool(sentence)
    assert "gym:Some-v0" in found or not found


def test_stacked_images_are_told_as_they_are_seen() -> None:
    """The shape in the sentence is that of the stack."""
    assert "a (72, 96, 16)" in told(Mlp(), 4, a=PLANES)


def test_stacking_lengthens_the_last_axis() -> None:
    """Arrays, numbers, choices: what a network sees of three frames."""
    seen: dict[str, Space] = {
        "image": PLANES,
        "number": Box(()),
        "choice": Discrete(5),
        "choices": MultiDiscrete((2, 3)),
    }
    found = stacked(Spaces(seen, Discrete(2)), 3)
    assert found["image"].shape == (72, 96, 12)
    assert is_image(found["image"])
    assert found["number"].shape == (3,)
    assert found["choice"] == MultiDiscrete((5, 5, 5))
    assert found["choices"] == MultiDiscrete((2, 3, 2, 3, 2, 3))
    assert [vector_width(found[name]) for name in ("number", "choice", "choices")] == [3, 15, 15]
    assert stacked(Spaces(seen, Discrete(2)), 1) == seen


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        (
            "sleeper:?mean=0&observation=36x40x1&dtype=uint8",
            {"model": Conv(hidden=32), "frame_stack": 2},
        ),
        (
            "sleeper:?mean=0&observation=9x7x3&dtype=uint8",
            {"model": Impala(channels=(4, 4), hidden=16)},
        ),
        ("python:tests.fakes.small_worlds:Small?agents=3", {"frame_stack": 3}),
        ("gym:CartPole-v1", {"model": Mlp(hidden=())}),
        ("gym:CartPole-v1", {"model": Mlp(hidden=(16,), activation="relu", shared=True)}),
        ("gym:Pendulum-v1", {"squash": True}),
        ("gym:CartPole-v1", {"replicas": 8, "recurrent": "gru", "recurrent_units": 32}),
        (
            "sleeper:?mean=0&length=9&observation=36x36x1&dtype=uint8",
            {"replicas": 8, "model": Conv(hidden=32), "recurrent": "lstm", "sequence": 4},
        ),
        (
            "python:tests.fakes.small_worlds:Small?action=many&agents=3",
            {"policies": "separate", "recurrent": "lstm", "recurrent_units": 8, "sequence": 8},
        ),
    ],
)
def test_what_fits_can_be_learnt_with(env: str, changes: dict[str, object]) -> None:
    """Every kind of model and of observation makes a whole run, with the first ratio at 1."""
    updates = outcome(small(env, **changes))
    assert [update.told["train/ratio_error_first"] for update in updates] == [0.0] * 3


BOUNDED = Box((2,), "float32", -1.0, 1.0)
TAUGHT = {
    "choices": (Spaces({"a": Box((3,))}, Discrete(2)), {}, "are choices (Discrete(n=2))"),
    "no bounds": (Spaces({"a": Box((3,))}, Box((2,))), {}, "pql needs a finite low"),
    "a team": (Spaces({"a": Box((3,))}, BOUNDED, 2), {}, "pql is for one agent, and gym:Some-v0"),
    "pictures": (Spaces({"a": PLANES}, BOUNDED), {}, "gym:Some-v0 shows images only"),
    "critics with pictures": (
        Spaces({"a": PLANES, "b": Box((3,))}, BOUNDED),
        {"critic_sees": ("a",)},
        "critics see vectors, and a is an image",
    ),
    "no such field": (
        Spaces({"a": Box((3,))}, BOUNDED),
        {"policy_sees": ("b",)},
        "policy_sees: the environment has no field 'b'; it has: a",
    ),
    "everything": (Spaces({"a": Box((3,)), "b": Discrete(4)}, BOUNDED), {}, ""),
}


@pytest.mark.parametrize("name", TAUGHT)
def test_what_critics_can_teach_in(name: str) -> None:
    """Continuous actions of one agent within bounds, and a vector for the critics."""
    spaces, sees, sentence = TAUGHT[name]
    found = misfits(Experiment(env="gym:Some-v0", algo=PQL(**sees)), spaces)
    assert sentence in " ".join(found)
    assert bool(found) == bool(sentence)


def model_for(*sets: str, env: str = "gym:CartPole-v1", **seen: Space) -> Mlp | Conv | Impala:
    """The model of a run without a ready configuration, once its environment was looked at."""
    resolved = configure(None, [f"env={env}", *sets])
    found = with_model(resolved, Spaces(seen, Discrete(2)))
    assert misfits(found.config.experiment, Spaces(seen, Discrete(2))) == []
    return found.config.experiment.model


def test_a_model_that_sees_images_is_chosen_where_none_is_named() -> None:
    """The convolutional net, the residual one for small images, with vectors beside or without."""
    sleeper = "sleeper:"
    assert model_for(env=sleeper, a=PLANES) == Conv()
    assert model_for(env=sleeper, a=PLANES, b=NUMBERS) == Conv()
    assert model_for(env=sleeper, a=Box((20, 20, 3), "uint8")) == Impala()
    assert model_for(env=sleeper, a=NUMBERS) == Mlp()
    assert model_for("model=impala", env=sleeper, a=PLANES) == Impala()


def test_a_model_that_was_named_is_kept() -> None:
    """Also one that does not fit: that is told, and nothing else is put in its place."""
    resolved = configure(None, ["env=sleeper:", "model=mlp"])
    spaces = Spaces({"a": PLANES}, Discrete(2))
    assert with_model(resolved, spaces) is resolved
    assert "--set model=conv" in " ".join(misfits(resolved.config.experiment, spaces))


def test_the_record_says_who_chose_the_model() -> None:
    """Its origin is told where every value's is."""
    resolved = with_model(configure(None, ["env=sleeper:"]), Spaces({"a": PLANES}, Discrete(2)))
    assert resolved.origins["experiment.model.name"] == FOR_IMAGES


@pytest.mark.parametrize("shape", [(3, 96, 96), (9, 84, 84)])
def test_an_image_whose_channels_are_not_last_is_refused(shape: tuple[int, ...]) -> None:
    """One sentence with the shape and how to mend it, whatever the model."""
    for model in (Mlp(), Conv(), Impala()):
        found = told(model, a=Box(shape, "uint8"))
        assert found.startswith("experiment.env: ")
        assert f"shows a with the shape {shape}" in found
        assert "np.moveaxis(image, 0, -1)" in found
        assert found.count("experiment.") == 1


def test_several_images_are_refused_at_once() -> None:
    """No model is named that could not see them either."""
    found = told(Mlp(), a=PLANES, b=PLANES)
    assert "shows several images (a (72, 96, 4), b (72, 96, 4))" in found
    assert "--set model" not in found
