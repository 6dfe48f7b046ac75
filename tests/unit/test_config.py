"""The configuration: layers, origins, short names, and every wrong value told in a sentence."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import torch

from hts.cli.show_config import show_config
from hts.config import (
    A2C,
    PPO,
    Conv,
    Experiment,
    Given,
    Impala,
    Mlp,
    configure,
    flatten,
    ready_configs,
)
from hts.config.ready import Ready, example, listing, ready, select
from hts.config.resolve import all_paths, full_path
from hts.errors import BadConfig
from hts_envs.registry import parse


def flags(**values: str) -> list[Given]:
    """Named flags as `hts-train` makes them."""
    paths = {"env": "experiment.env", "algo": "experiment.algo", "seed": "experiment.seed"}
    return [Given(paths[name], value, f"--{name}") for name, value in values.items()]


def problems(config: str | None = None, sets: tuple[str, ...] = (), **typed: str) -> str:
    """What a wrong command line is told, as one text."""
    with pytest.raises(BadConfig) as caught:
        configure(config, sets, flags(**typed))
    return "\n".join(caught.value.problems)


@pytest.mark.parametrize("each", ready(), ids=lambda each: each.name)
def test_every_ready_configuration_resolves(each: Ready) -> None:
    """Each file in configs/ is a whole experiment without a violation; a base is one with --env."""
    environment = [] if each.env else flags(env=example(each.name, each.algo))
    listening = ("listen=tcp://127.0.0.1:5555",) if each.selected_for == "remote:*" else ()
    assert configure(each.name, listening, environment).config.experiment.updates >= 1


@pytest.mark.parametrize("each", ready(), ids=lambda each: each.name)
def test_every_ready_configuration_is_selected_by_what_it_declares(each: Ready) -> None:
    """By its own --algo and --env; by another environment of its family; or by its name alone."""
    if each.selected_for is None and each.env is not None:
        assert select(each.algo, parse(each.env)) == each.name
        return
    others = {"atari:*": "Pong", "gfootball:*": "11v11_easy", "gym:*": "MountainCarContinuous-v0"}
    others["remote:*"] = "any-name"
    selected = select(each.algo, parse(each.env)) if each.env else None
    assert selected != each.name or each.selected_for in others
    if each.selected_for in others:
        family = each.selected_for.removesuffix("*")
        assert select(each.algo, parse(f"{family}{others[each.selected_for]}")) == each.name
    else:
        assert each.selected_for in ("none", None), "a word that nothing reads"


def test_no_two_ready_configurations_claim_the_same_environment() -> None:
    """Of two files that fit one environment, the options of one extend those of the other: which
    one is selected never depends on the order of their names."""
    claims = [each for each in ready() if each.selected_for != "none"]
    for one, other in itertools.combinations(claims, 2):
        if one.algo == other.algo:
            assert not is_claimed_twice(one, other), f"{one.name} and {other.name}"


def is_claimed_twice(one: Ready, other: Ready) -> bool:
    """Whether an environment exists that both files fit equally closely."""
    if one.selected_for or other.selected_for:
        return one.selected_for == other.selected_for
    if one.env is None or other.env is None:
        return False  # a base without `selected_for` fits nothing
    (head, _, query), (other_head, _, other_query) = (e.env.partition("?") for e in (one, other))
    options, others = (dict(parse_qsl(text)) for text in (query, other_query))
    contradict = any(options[name] != others[name] for name in options.keys() & others.keys())
    return head == other_head and not contradict and len(options) == len(others)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("batched:ball_balance", "pql-ball-balance"),
        ("batched:ball_balance?observation=both", "pql-ball-balance-vision"),
        ("batched:ball_balance?observation=both&device=cpu", "pql-ball-balance-vision"),
        ("sleeper:?control=number&mean=1", "pql-sleeper"),
        ("sleeper:", None),
        ("gym:MountainCarContinuous-v0", "pql-gym"),
    ],
)
def test_the_closest_declaration_selects(env: str, name: str | None) -> None:
    """The environment with most of the options that were typed, then the family."""
    assert select("pql", parse(env)) == name


def test_of_two_claims_one_is_found() -> None:
    """The test above would find a file that copies another one's environment."""
    (plain,) = (each for each in ready() if each.name == "pql-ball-balance")
    (vision,) = (each for each in ready() if each.name == "pql-ball-balance-vision")
    assert is_claimed_twice(plain, dataclasses.replace(plain, name="copy"))
    assert is_claimed_twice(vision, dataclasses.replace(vision, name="copy"))
    assert not is_claimed_twice(plain, vision)


@pytest.mark.parametrize(
    ("config", "typed", "sentence"),
    [
        ("pql-gym", {}, "--config pql-gym names no environment; add --env gym:HalfCheetah-v5"),
        ("pql-paper", {}, "--config pql-paper names no environment; add --env batched:ant"),
        ("pql-remote", {}, "--config pql-remote names no environment; add --env remote:my-game"),
        (None, {"algo": "pql"}, "--algo pql names no environment; add --env gym:Pendulum-v1"),
        (None, {"seed": "3"}, "no environment is named; add --env gym:CartPole-v1, or start from"),
    ],
)
def test_a_run_without_an_environment_is_refused(
    config: str | None, typed: dict[str, str], sentence: str
) -> None:
    """A base, or an algorithm alone: the sentence names what was typed and an environment."""
    assert sentence in problems(config, (), **typed)


def test_bases_are_listed_apart() -> None:
    """In the help, and where --config is no file and resembles none."""
    told = problems("/nowhere/at/all.yaml")
    assert told.endswith(listing())
    whole, _, bases = listing().partition("; bases, which need --env: ")
    assert bases == "pql-gym, pql-paper, pql-remote"
    assert "ppo-cartpole" in whole
    assert not {*bases.split(", ")} & {*whole.removeprefix("ready: ").split(", ")}


@pytest.mark.parametrize("name", sorted(ready_configs()))
def test_every_ready_configuration_opens_with_what_to_expect(name: str) -> None:
    """The first line of each file in configs/ is a comment for the person who picks it."""
    assert ready_configs()[name].read_text(encoding="utf-8").startswith("# ")


def test_football_has_the_numbers_of_the_paper() -> None:
    """The main job is the paper's experiment: table A6 and the released scripts."""
    experiment = configure(None, (), flags(algo="ppo", env="gfootball:3v1")).config.experiment
    algo = experiment.algo
    assert isinstance(algo, PPO)
    assert (experiment.replicas, experiment.rollout, experiment.steps) == (16, 128, 5_000_000)
    assert (algo.learning_rate, algo.gamma, algo.gae_lambda) == (3.43e-4, 0.993, 0.95)
    assert (algo.clip, algo.epochs, algo.minibatches) == (0.08, 2, 8)
    assert (algo.entropy_coefficient, algo.max_gradient_norm) == (0.003, 0.64)
    assert (experiment.model.name, experiment.frame_stack) == ("conv", 4)


def test_a2c_on_atari_has_the_numbers_of_the_paper() -> None:
    """The paper's table A3."""
    experiment = configure(None, (), flags(algo="a2c", env="atari:Breakout")).config.experiment
    algo = experiment.algo
    assert isinstance(algo, A2C)
    assert (experiment.rollout, algo.learning_rate, algo.optimiser) == (5, 7e-4, "rmsprop")
    assert (algo.gamma, algo.entropy_coefficient, algo.optimiser_epsilon) == (0.99, 0.01, 1e-5)


def test_later_layers_win_and_say_where_they_come_from() -> None:
    """Defaults, then the file, then --set, then the flags; each value knows its origin."""
    resolved = configure("ppo-cartpole", ("seed=3", "epochs=2"), flags(seed="4"))
    assert resolved.config.experiment.seed == 4
    assert resolved.origins["experiment.seed"] == "--seed"
    assert resolved.origins["experiment.algo.epochs"] == "--set epochs=2"
    assert resolved.origins["experiment.algo.clip"].startswith("configs/ppo-cartpole.yaml:")
    assert "experiment.algo.value_clip" not in resolved.origins


def test_origin_names_the_line(tmp_path: Path) -> None:
    """The line in an origin is the line on which the value stands."""
    path = tmp_path / "mine.yaml"
    path.write_text("# a comment\nexperiment:\n  env: sleeper\n  replicas: 8\n")
    assert configure(str(path)).origins["experiment.replicas"] == f"{path}:4"


def test_a_base_comes_before_the_file_that_names_it() -> None:
    """A scenario's file changes the environment of the file that it is based on, and no more."""
    base, scenario = configure("ppo-gfootball"), configure("ppo-gfootball-rsk")
    different = {
        path: value
        for path, value in flatten(scenario.config).items()
        if flatten(base.config)[path] != value
    }
    assert different == {"experiment.env": "gfootball:rsk"}


def test_another_algorithm_drops_what_the_file_said_about_the_first() -> None:
    """--algo a2c over a PPO file starts from A2C's own defaults, but keeps what was typed."""
    resolved = configure(
        "ppo-cartpole", ("learning_rate=0.001",), flags(algo="a2c", env="sleeper:")
    )
    algo = resolved.config.experiment.algo
    assert isinstance(algo, A2C)
    assert algo == A2C(learning_rate=0.001)


def test_a_general_file_serves_the_whole_family() -> None:
    """A football scenario without a file of its own starts from the family's file."""
    resolved = configure(None, (), flags(env="gfootball:11v11_easy"))
    assert resolved.origins["experiment.frame_stack"].startswith("configs/ppo-gfootball.yaml")


def test_an_environment_without_a_file_starts_from_the_defaults() -> None:
    """Nothing is guessed for an environment that no ready configuration speaks of."""
    resolved = configure(None, (), flags(env="sleeper:"))
    assert set(resolved.origins) == {"experiment.env"}
    assert resolved.config.experiment.model == Mlp()


def test_all_problems_are_told_at_once_with_their_origin(tmp_path: Path) -> None:
    """Unknown keys, wrong types and wrong ranges, each with the nearest name or the limit."""
    path = tmp_path / "bad.yaml"
    path.write_text(
        "experiment:\n  env: sleeper\n  replcias: 8\n  algo:\n    name: ppo\n    gamma: 1.5\n"
    )
    told = problems(str(path), ("epochs=two", "experiment.machine=1"))
    assert f"{path}:3: there is no setting 'experiment.replcias'" in told
    assert "did you mean 'experiment.replicas'" in told
    assert f"{path}:6: experiment.algo.gamma must be a number from 0 to 1, not 1.5" in told
    assert "--set epochs=two: must be a whole number from 1, not 'two'" in told
    assert "'experiment.machine'" in told


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("learning_rat=1", "did you mean 'learning_rate'"),
        ("name=ppo", "could be experiment.algo.name or experiment.model.name"),
        ("algo=pp0", "there is no algorithm 'pp0' (did you mean 'ppo'?)"),
        ("model=transformer", "there is no model 'transformer' (available: conv, impala, mlp)"),
        ("schedule=fast", "--set schedule=fast: must be hts or sync, not 'fast'"),
        ("seed=-1", "must be a whole number from 0 to 9223372036854775807, not -1"),
        ("seed=1.5", "must be a whole number"),
        ("learning_rate=0", "must be a number above 0, not 0"),
        ("learning_rate=nan", "must be a number above 0, not 'nan'"),
        ("executors=many", "must be auto or a whole number from 1, not 'many'"),
        ("executors=0", "--set executors=0: must be auto or a whole number from 1, not 0"),
        ("actors=17", "must be auto or a whole number from 0 to 16, not 17"),
        ("device=gpu", "must be auto, cpu, cuda or cuda:N, not 'gpu'"),
        ("normalise_rewards=perhaps", "must be true or false"),
        ("minibatches", "write it as name=value"),
        ("=3", "write it as name=value"),
    ],
)
def test_a_wrong_value_gets_one_clear_sentence(wrong: str, sentence: str) -> None:
    """Whatever can be mistyped in --set is named, with what would be right."""
    assert sentence in problems("smoke", (wrong,))


def test_a_list_of_one_needs_no_brackets() -> None:
    """hidden=64 is one hidden layer."""
    assert configure("smoke", ("hidden=64",)).config.experiment.model == Mlp(hidden=(64,))


def test_a_value_of_another_algorithm_says_whose_it_is() -> None:
    """PPO's clip given to A2C: the sentence says which algorithm has it."""
    told = problems(None, ("clip=0.1",), algo="a2c", env="sleeper:")
    assert "a2c has no setting 'clip'; ppo has one" in told


PQL = ("algo=pql", "env=gym:Pendulum-v1")


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (("minibatches=3",), "4 replicas x rollout 32 = 128 rows do not divide into 3 minibatches"),
        (("minibatches=3",), "2 and 4 do"),
        (("shards=3",), "a minibatch of 64 rows"),
        (("executors=5",), "5 executors for 4 replicas"),
        (("shards=4", "learners=8"), "8 learner workers for 4 shards"),
        (("learners=2",), "2 learner workers for 1 shard:"),
        ((*PQL, "replay=255"), "do not hold two windows of 4 replicas x rollout 32 = 128 rows"),
        ((*PQL, "replay=255"), "give at least 256"),
        ((*PQL, "beta_pv=3"), "8 x 32 = 256 updates of the critics, which do not divide by 3"),
        ((*PQL, "beta_pv=3"), "2 and 4 do"),
        ((*PQL, "batch=100", "shards=3"), "a batch of 100 transitions does not divide into 3"),
        (
            (*PQL, "value_low=1", "value_high=1"),
            "--set value_low=1: 1 is not below experiment.algo.value_high, 1; make it smaller",
        ),
        ((*PQL, "noise_low=0.9"), "0.9 is not below experiment.algo.noise_high, 0.8; make it"),
        ((*PQL, "recurrent=gru"), "networks that remember are for a2c and ppo"),
        ((*PQL, "squash=true"), "the policy's own actions lie within the bounds"),
        ((*PQL, "steps=100"), "100 steps are less than one window"),
        ((*PQL, "steps=100"), "give at least 128 steps, or fewer replicas or a shorter rollout"),
        (("machine.devices.p_learner=cuda:7",), "p_learner=cuda:7: cuda:7 is not there"),
        (
            ("machine.devices.actor=gpu",),
            "machine.devices.actor=gpu: must be auto, cpu, cuda",
        ),
        (("recurrent=gru", "sequence=5"), "steps does not divide into sequences of 5; 4 and 8 do"),
        (("sequence=8",), "sequences of 8 steps are for a network that remembers"),
        (("recurrent=gru", "minibatches=3"), "4 sequences of 32 do not divide into 3 minibatches"),
        (("steps=100",), "100 steps are less than one rollout"),
        (("schedule=sync", "correction=none"), "schedule sync has no lag"),
        (("schedule=sync", "barrier=true"), "no second storage to swap"),
        (("env=gym:CartPole-v7x",), "CartPole"),
        (("env=counting:",), "--set env=counting:: counting: takes one right action"),
        (("device=cuda:7",), "--set device=cuda:7: cuda:7 is not there: this machine has "),
    ],
)
def test_violations_show_both_sides_in_numbers(sets: tuple[str, ...], sentence: str) -> None:
    """Values that do not go together: which, what they make, and what would go."""
    assert sentence in problems("smoke", sets)


def test_violations_are_all_told_at_once_and_placed() -> None:
    """check() does not stop at the first, and each sentence starts with where the value stands."""
    told = problems("smoke", ("minibatches=3", "executors=9")).splitlines()
    assert len(told) == 2
    assert told[0].startswith("--set minibatches=3: 4 replicas x rollout 32 = 128 rows do not")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("experiment: [", "this is not YAML"),
        ("experiment:\n  env: sleeper:\n", ":2: this is not YAML: mapping values"),
        ("- a\n- b\n", "is a mapping"),
        ("experiment:\n  seed: 1\n  seed: 2\n", ":3: experiment.seed is given twice"),
        ("base: nowhere\n", "base nowhere: there is no such file"),
        ("base: {self}\n", "based on itself"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_line(
    tmp_path: Path, text: str, sentence: str
) -> None:
    """Broken YAML, a list, a doubled key, a missing base, a circle."""
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace("{self}", str(path)))
    assert sentence in problems(str(path))


def test_a_missing_file_names_the_nearest_ready_configuration() -> None:
    """--config is a name or a path; a mistyped name is corrected."""
    assert "did you mean 'ppo-cartpole'" in problems("ppo-cartpol")


def test_short_names_reach_every_unambiguous_path() -> None:
    """The last word of a path suffices exactly when no other path ends in it."""
    last = [path.rpartition(".")[2] for path in all_paths()]
    for path, word in zip(all_paths(), last, strict=True):
        if last.count(word) == 1:
            assert full_path(word) == path


def test_shown_configuration_reads_back_as_itself(tmp_path: Path) -> None:
    """--show-config prints YAML that --config takes, with the same result."""
    resolved = configure("ppo-halfcheetah", ("hidden=32,16", "clip_rewards=5"))
    path = tmp_path / "again.yaml"
    path.write_text(show_config(resolved, colour=False))
    assert configure(str(path)).config == resolved.config


@pytest.mark.parametrize(
    ("replicas", "rollout", "minibatches", "changes", "shards"),
    [
        (64, 32, 8, {}, 1),  # 256 rows
        (64, 64, 1, {}, 1),  # 4,096
        (64, 256, 2, {}, 2),  # 8,192
        (16, 128, 8, {"model": Conv()}, 4),  # 256 in parts of 64
        (15, 16, 1, {"model": Impala()}, 4),  # 240 in parts of 60
        (2, 67, 1, {"model": Conv()}, 2),  # 67 is prime
        (1, 67, 1, {"model": Conv()}, 1),  # and 1 row too few
        (16, 128, 2, {"model": Conv(), "recurrent": "gru"}, 2),  # 8 sequences, at least 4 in each
        (16, 128, 4, {"model": Conv(), "recurrent": "gru", "sequence": 8}, 8),  # 64 of 8 rows
        (16, 128, 3, {"model": Conv()}, 11),  # refused for its minibatches, and no error here
        (16, 128, 8, {"model": Conv(), "shards": 5}, 5),
    ],
)
def test_shards_by_default_fit_caches(
    replicas: int, rollout: int, minibatches: int, changes: dict[str, Any], shards: int
) -> None:
    """The fewest that leave 64 images or 4,096 vectors in each, and at least 4 rows or sequences:
    by literal numbers."""
    algo = PPO(minibatches=minibatches)
    assert (
        Experiment(algo=algo, replicas=replicas, rollout=rollout, **changes).shard_count == shards
    )


def test_shards_by_default_are_those_numbers() -> None:
    """Spelled out or not, it is the same experiment; another number is another one."""
    here = configure("ppo-gfootball-3v1").config.experiment
    assert (here.shards, here.shard_count) == ("auto", 4)
    same, other = (dataclasses.replace(here, shards=shards) for shards in (4, 2))
    assert here.identity() == same.identity() != other.identity()


def test_identity_follows_the_experiment_and_nothing_else() -> None:
    """Another machine, or the same world spelled otherwise: same identity; another seed: not."""
    here = configure("ppo-gfootball-3v1").config.experiment.identity()
    machine = configure("ppo-gfootball-3v1", ("executors=2", "actors=4"))
    spelled = configure(None, (), flags(env="gfootball:academy_3_vs_1_with_keeper?agents=1"))
    other = configure("ppo-gfootball-3v1", ("seed=1",))
    assert machine.config.experiment.identity() == here
    assert spelled.config.experiment.identity() == here
    assert other.config.experiment.identity() != here


@pytest.mark.parametrize(("devices", "missing"), [(0, {0, 1}), (1, {1}), (2, set())])
def test_only_existing_gpus_can_be_named(
    monkeypatch: pytest.MonkeyPatch, devices: int, missing: set[int]
) -> None:
    """Indices count from 0: with one GPU cuda:0 exists and cuda:1 does not."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    for index in range(2):
        name = f"device=cuda:{index}"
        if index in missing:
            assert f"cuda:{index} is not there" in problems("smoke", (name,))
        else:
            assert configure("smoke", (name,)).config.machine.device == f"cuda:{index}"
