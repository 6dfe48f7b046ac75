"""Weights that a run starts from: which ones, what they are named by, and where they do not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hts.config import A2C, PQL, Mlp
from hts.errors import WrongUsage
from hts.models.policy import initial_parameters
from hts.report.start import FILE, Start, find_start, load_start, require_start
from hts.runtime.assemble import Plan, plan
from hts_envs.registry import parse
from tests.fakes.runs import experiment


def planned(env: str = "gym:CartPole-v1", start: Start | None = None, **changes: Any) -> Plan:
    asked = experiment(env, **changes)
    return plan(asked, parse(env), "cpu", start=start)


def start_of(found: Plan, seed: int = 9, *, has_outline: bool = True) -> Start:
    """Weights of this plan's network that no run has made."""
    arrays = {"parameters": initial_parameters(found.policy(), seed).numpy()}
    for name, moments in found.scale().moments.items():
        arrays[f"{name}.count"] = np.array(7.0)
        arrays[f"{name}.mean"] = moments.mean + 0.5
        arrays[f"{name}.squares"] = moments.squares + 2.0
    return Start(arrays, found.outline() if has_outline else {}, "--start-from there")


def started(start: Start, env: str = "gym:CartPole-v1", **changes: Any) -> Plan:
    return planned(env, start, start_from=start.content, **changes)


@pytest.mark.parametrize("schedule", ["hts", "sync"])
def test_the_first_versions_are_the_weights(schedule: str) -> None:
    """Parameters, and the statistics that observations are normalised with."""
    changes = {"normalise_observations": True, "schedule": schedule}
    start = start_of(planned(**changes))
    versions = started(start, **changes).first_versions()
    assert [version.number for version in versions] == ([0, 1] if schedule == "hts" else [0])
    for version in versions:
        assert torch.equal(version.parameters, torch.from_numpy(start.arrays["parameters"]))
        moments = version.scale.moments["observation"]
        assert (moments.count, moments.mean.tolist()) == (7.0, [0.5] * 4)
        assert moments.squares.tolist() == [2.0] * 4


def test_the_hash_is_of_the_content_alone(tmp_path: Path) -> None:
    """Found elsewhere, or as a copy: the same experiment. One bit, type or name: another one."""
    start = start_of(planned(normalise_observations=True))
    start.save(tmp_path)
    copy = find_start(f"{record(tmp_path)}:0")
    assert (copy.content, copy.outline) == (start.content, start.outline)
    contents = {start.content}
    for name, array in start.arrays.items():
        flat = np.array(array).reshape(-1)
        flat[-1] = np.nextafter(flat[-1], flat[-1] + 1)
        others = (flat.reshape(array.shape), array.astype(np.longdouble))
        contents |= {Start({**start.arrays, name: o}, {}, "").content for o in others}
        renamed = {**start.arrays, f"{name}_": array}
        del renamed[name]
        contents.add(Start(renamed, {}, "").content)
    assert len(contents) == 1 + 3 * len(start.arrays)


def record(path: Path) -> Path:
    """As much of a run's directory as it takes to be one."""
    manifest = '{"experiment": "a", "config": {}, "numerics": {}, "versions": {}}'
    (path / "manifest.json").write_text(manifest)
    return path


SMALL = "python:tests.fakes.small_worlds:Small"


@pytest.mark.parametrize(
    ("there", "here", "sentence"),
    [
        (
            {},
            {"env": "gym:Acrobot-v1"},
            "field observation: float32 4 in that run, and float32 6 in this experiment "
            "(gym:Acrobot-v1)",
        ),
        (
            {"env": f"{SMALL}?action=one"},
            {"env": f"{SMALL}?action=many"},
            "actions: one of 3 in that run, and several of (2, 3, 4) in",
        ),
        ({}, {"recurrent": "gru"}, "recurrent: none in that run, and gru in this"),
        ({}, {"model": Mlp(hidden=(64, 32))}, "tensor 4: 64 x 64 in that run, and 32 x 64 in"),
        ({}, {"model": Mlp(activation="relu")}, "activation: tanh in that run, and relu in"),
        ({}, {"normalise_observations": True}, "normalised fields: none in that run, and obs"),
        (
            {"env": "gym:Pendulum-v1"},
            {"env": "gym:Pendulum-v1", "algo": PQL()},
            "actions: float32 1, clipped in that run, and float32 1, scaled in",
        ),
    ],
)
def test_weights_of_another_network_are_refused(
    there: dict[str, Any], here: dict[str, Any], sentence: str
) -> None:
    """The sentence names what differs, on both sides."""
    start = start_of(planned(**there))
    with pytest.raises(WrongUsage, match=re.escape(sentence)):
        started(start, **here)


def test_a_run_of_an_older_version_is_known_by_its_arrays() -> None:
    """Its manifest does not describe the network: the number of parameters and the normalised
    fields must do."""
    start = start_of(planned(), has_outline=False)
    assert started(start).first_versions()
    with pytest.raises(WrongUsage, match="parameters: 9155 in that run, and 9476 in this"):
        started(start, "gym:Acrobot-v1")
    with pytest.raises(WrongUsage, match="normalised fields: none in that run, and observation"):
        started(start, normalise_observations=True)


def test_an_experiment_of_other_rules_takes_the_same_network() -> None:
    """Algorithm, seed, replicas, schedule and model options that compute the same may differ."""
    start = start_of(planned())
    changes = {"algo": A2C(), "seed": 5, "replicas": 2, "schedule": "sync", "clip_rewards": 1.0}
    first, *_ = started(start, **changes).first_versions()
    assert torch.equal(first.parameters, torch.from_numpy(start.arrays["parameters"]))


def test_weights_that_nothing_names_are_refused(tmp_path: Path) -> None:
    """A configuration holds their hash alone, and a directory may have lost or changed them."""
    start = start_of(planned())
    asked = experiment(start_from=start.content)
    with pytest.raises(WrongUsage, match="name a run that has them with --start-from RUN"):
        require_start(asked, None)
    with pytest.raises(WrongUsage, match=f"{FILE}: there is no such file"):
        load_start(tmp_path, asked)
    start_of(planned(), seed=10).save(tmp_path)
    with pytest.raises(WrongUsage, match="not the weights that this run started from"):
        load_start(tmp_path, asked)
    start.save(tmp_path)
    found = load_start(tmp_path, asked)
    assert found is not None
    assert found.content == start.content
    assert load_start(tmp_path, experiment()) is None, "it began with its seed's"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("{run}:7", "--start-from {run}:7: no policy after update 7 is kept there; available: non"),
        ("{run}", "--start-from {run}: no policy is kept there"),
        ("{run}:0", "--start-from {run}:0: no policy after update 0"),
        ("{run}/nowhere:3", "{run}/nowhere: there is no such directory"),
    ],
)
def test_what_is_not_there_is_said(said: str, sentence: str, tmp_path: Path) -> None:
    """A run without policies, and no run at all."""
    run = record(tmp_path)
    with pytest.raises(WrongUsage, match=re.escape(sentence.format(run=run))):
        find_start(said.format(run=run))
