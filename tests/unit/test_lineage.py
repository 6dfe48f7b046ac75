"""Experiments that extend finished runs: their stages, identities, schedules and digests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hts.config import PPO, Experiment, configure, flatten
from hts.config.extended import Extended
from hts.config.lineage import ends, falling, identities, identity_at, stages
from hts.determinism.digest import Digest
from hts.errors import BadConfig
from hts.models.policy import Policy
from hts.roles.learner import Learner
from hts_envs.contract import Box, Discrete, Spaces

FIRST, SECOND = "1" * 32, "2" * 32
LINEAR = PPO(learning_rate=1.0, learning_rate_schedule="linear")


def asked(steps: int = 100, **changes: Any) -> Experiment:
    """Ten steps in each update."""
    given: dict[str, Any] = {"algo": LINEAR, "env": "gym:CartPole-v1", "replicas": 2, "rollout": 5}
    return Experiment(steps=steps, **{**given, **changes})


def longer(steps: int, *finished: tuple[int, str, Any], **changes: Any) -> Experiment:
    """An experiment that extends runs of so many steps, with these digests and horizons."""
    steps_before, digests, horizons = zip(*finished, strict=True)
    extended = Extended(from_steps=steps_before, from_digests=digests, horizons=horizons)
    return asked(steps, extended=extended, **changes)


@pytest.mark.parametrize(
    ("name", "identity"),
    [("ppo-cartpole", "79e8ce13a0b7de1b"), ("ppo-gfootball-3v1", "a36d198504b124f7")],
)
def test_the_identity_of_ready_configurations_is_frozen(name: str, identity: str) -> None:
    """Runs of these configurations exist: their identity is what it always was."""
    assert configure(name).config.experiment.identity() == identity


def test_what_is_unset_is_in_no_record() -> None:
    """An experiment that extends nothing has the manifest of a version that could not."""
    assert not [path for path in flatten(configure("smoke").config) if "extended" in path]
    assert not [path for path in flatten(configure("smoke").config) if "start_from" in path]


def test_an_experiment_has_a_stage_for_each_finished_run() -> None:
    """Each stage is the experiment that was run then, by the updates made before it."""
    twice = longer(300, (95, FIRST, "stretch"), (200, SECOND, "restart"))
    first, once = asked(95), longer(200, (95, FIRST, "stretch"))
    assert stages(twice) == {0: first, 10: once, 20: twice}
    assert identities(first) == {0: first.identity()}
    found = identities(twice)
    assert found == {0: first.identity(), 10: once.identity(), 20: twice.identity()}
    made_by = [identity_at(found, update) for update in (0, 1, 10, 11, 20, 21, 30)]
    assert made_by == [found[before] for before in (0, 0, 0, 10, 10, 20, 20)]
    assert ends(twice) == {10: FIRST, 20: SECOND}


def test_everything_about_a_finished_run_is_in_the_identity() -> None:
    """Where the extension began, with which digest, and what the learning rate does from there."""
    others = [
        longer(200, (100, FIRST, "stretch")),
        longer(200, (100, SECOND, "stretch")),
        longer(200, (100, FIRST, "restart")),
        longer(200, (90, FIRST, "stretch")),
        longer(300, (100, FIRST, "stretch")),
        longer(200, (50, SECOND, "stretch"), (100, FIRST, "stretch")),
        asked(200),
        asked(200, start_from=FIRST),
    ]
    assert len({each.identity() for each in others}) == len(others)


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        ((), {0: 1.0, 10: 2 / 3, 29: 1 / 30}),
        ((100, FIRST, "stretch"), {0: 1.0, 9: 0.1, 10: 2 / 3, 29: 1 / 30}),
        ((100, FIRST, "restart"), {0: 1.0, 9: 0.1, 10: 1.0, 20: 0.5, 29: 0.05}),
    ],
)
def test_a_linear_rate_does_what_the_extension_says(
    finished: tuple[int, str, Any], expected: dict[int, float]
) -> None:
    """By literal numbers; the first stage is as it was."""
    experiment = longer(300, finished) if finished else asked(300)
    spaces = Spaces({"observation": Box((4,))}, Discrete(2))
    learner = Learner(experiment, Policy(experiment, spaces))
    rates = {updates: learner._rate(updates) for updates in expected}
    learner.close()
    assert rates == pytest.approx(expected, rel=1e-12)


def test_what_falls_goes_on_falling_from_where_it_was_restarted() -> None:
    """`stretch` after `restart` moves the end of the line, and not its begin."""
    again = longer(400, (100, FIRST, "restart"), (200, SECOND, "stretch"))
    assert [falling(again, updates) for updates in (9, 10, 19, 20)] == [
        (0, 100),
        (100, 200),
        (100, 200),
        (100, 400),
    ]


def test_the_digest_of_an_extension_begins_with_the_finished_run_s() -> None:
    """The chain of the finished run, then the new identity, before the next update is folded in:
    for a run from its first step, and for one that goes on from a checkpoint."""
    parameters = np.zeros(3, np.float32)
    finished, extended = Digest("first"), Digest({0: "first", 2: "second"})
    for digest in (finished, extended):
        digest.fold("a", parameters)
        digest.fold("b", parameters)
    assert extended.chain == finished.chain, "nothing of the extension has been run"
    resumed = Digest({0: "first", 2: "second"}).after(2, finished.chain)
    assert extended.fold("c", parameters) == resumed.fold("c", parameters)
    assert extended.chain != finished.fold("c", parameters).chain
    other = Digest({0: "first", 2: "third"}).after(2, resumed.chain)
    assert other.fold("c", parameters).chain != extended.chain


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (("from_steps=1000",), "need one entry each for every finished run"),
        (("from_steps=4000", f"from_digests={FIRST}", "horizons=stretch"), "must each add an upd"),
        (("from_steps=1000", "from_digests=abc", "horizons=stretch"), "'abc' is not a digest"),
        (("from_steps=1000", f"from_digests={FIRST}", "horizons=constant"), "stretch or restart"),
        (
            ("from_steps=1000", f"from_digests={FIRST}", "horizons=stretch", "algo=pql")
            + ("env=gym:Pendulum-v1",),
            "must be constant",
        ),
        (
            ("from_steps=0", f"from_digests={FIRST}", "horizons=stretch"),
            "must be a list of whole",
        ),
    ],
)
def test_stages_that_do_not_fit_are_refused(sets: tuple[str, ...], sentence: str) -> None:
    """Each with a sentence of its own."""
    with pytest.raises(BadConfig, match=sentence):
        configure("smoke", sets)
