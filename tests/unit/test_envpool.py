"""EnvPool's tasks as batched worlds: resets by the caller, ends told apart, seeds at the build."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hts_envs.envpool as family
from hts_envs import registry
from hts_envs.contract import BatchedStep, Box, Discrete, MultiDiscrete, Observation, Place
from hts_envs.envpool import EnvPoolWorld
from hts_envs.errors import BadName, BadOption, BrokenSimulator
from hts_envs.randomness import fold_rows

FOOTBALL = "gfootball/academy_empty_goal_close-v1"


def world(name: str, replicas: int = 3, replica: int = 0, seed: int = 7) -> EnvPoolWorld:
    made = registry.make(f"envpool:{name}", Place(replica, replicas, seed))
    assert isinstance(made, EnvPoolWorld)
    return made


def begin(made: EnvPoolWorld, rows: list[int] | None = None) -> Observation:
    chosen = np.arange(made.replicas) if rows is None else np.array(rows)
    return made.reset(chosen, np.zeros(len(chosen), np.uint64))


def actions(made: EnvPoolWorld, number: int, replica: int = 0) -> Any:
    """Actions that depend on the step and the replica alone."""
    keys = fold_rows(5, number, replica + np.arange(made.replicas))
    space = made.spaces.action
    if isinstance(space, Discrete):
        return (keys % np.uint64(space.n)).astype(np.int64)[:, None]
    assert isinstance(space, Box)
    size = int(np.prod(space.shape))
    values = (keys[:, None] >> np.arange(size, dtype=np.uint64)) % np.uint64(2)
    return (values * 2.0 - 1.0).astype(np.float32).reshape(-1, 1, *space.shape)


def play(made: EnvPoolWorld, steps: int, replica: int = 0) -> list[BatchedStep]:
    """Step and reset what ended, as an executor does."""
    taken = []
    for number in range(steps):
        step = made.step(actions(made, number, replica))
        taken.append(step)
        ended = np.flatnonzero(step.terminated | step.truncated)
        if len(ended):
            made.reset(ended, np.zeros(len(ended), np.uint64))
    return taken


def row(steps: list[BatchedStep], index: int) -> list[Any]:
    """All that one replica was sent."""
    return [
        (
            {name: array[index].tobytes() for name, array in step.observation.items()},
            *(step.reward[index].tobytes(), step.terminated[index], step.truncated[index]),
            {name: array[index] for name, array in step.facts.items()},
        )
        for step in steps
    ]


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "HalfCheetah-v5", "Pong-v5", FOOTBALL, "FrozenLake-v1", "FishSwim-v1"]
)
def test_what_is_sent_is_what_is_declared(name: str) -> None:
    """Shapes, types and bounds of observations and rewards are those of the spaces."""
    made = world(name)
    first = begin(made)
    for sent in (first, *(step.observation for step in play(made, 12))):
        assert sent.keys() == made.spaces.observation.keys()
        for key, array in sent.items():
            space = made.spaces.observation[key]
            assert array.shape == (3, 1, *space.shape)
            assert array.dtype == space.dtype
            if isinstance(space, Box):
                assert (array >= np.array(space.low)).all()
                assert (array <= np.array(space.high)).all()
    step = made.step(actions(made, 0))
    assert step.reward.shape == (3, 1)
    assert step.reward.dtype == np.float32
    assert step.terminated.shape == step.truncated.shape == (3,)
    made.close()


@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5", "Pong-v5", FOOTBALL])
def test_a_run_follows_from_the_seed_of_its_place(name: str) -> None:
    """Equal seeds give bit-equal runs whatever the threads, another seed gives another run."""
    runs = []
    for seed, threads in ((7, 1), (7, 2), (8, 1)):
        made = world(f"{name}?threads={threads}", seed=seed)
        runs.append([begin(made), row(play(made, 25), 1)])
        made.close()
    assert all(np.array_equal(runs[0][0][key], runs[1][0][key]) for key in runs[0][0])
    assert runs[0][1] == runs[1][1]
    assert runs[0][1] != runs[2][1]


@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5", "Pong-v5", FOOTBALL])
def test_a_replica_does_not_depend_on_its_pool(name: str) -> None:
    """Replica 2 of a pool of three plays what it plays in a pool of its own."""
    many, alone = world(name), world(name, replicas=1, replica=2)
    first = begin(many)
    second = begin(alone)
    assert all(np.array_equal(first[key][2], second[key][0]) for key in first)
    assert row(play(many, 25), 2) == row(play(alone, 25, replica=2), 0)


def test_ended_rows_are_reset_by_the_caller_and_nobody_else() -> None:
    """An ended row's reset gives its first observation; no dead row is stepped, none is missed."""
    made = world("CartPole-v1", replicas=8)
    begin(made)
    lengths = np.zeros(8, int)
    for number in range(120):
        step = made.step(actions(made, number))
        lengths += 1
        assert np.array_equal(step.facts["length"], lengths)
        assert np.array_equal(step.facts["return"], lengths)
        ended = np.flatnonzero(step.terminated)
        if not len(ended):
            continue
        last = step.observation["observation"][ended]
        assert ((np.abs(last[..., 0]) > 2.4) | (np.abs(last[..., 2]) > 0.2094)).all()
        fresh = made.reset(ended[::-1], np.zeros(len(ended), np.uint64))["observation"]
        assert fresh.shape == (len(ended), 1, 4)
        assert (np.abs(fresh) <= 0.05).all()
        lengths[ended] = 0


def test_rows_may_be_reset_one_after_the_other() -> None:
    """The first resets need not come together, and their order is the caller's."""
    together, apart = world("CartPole-v1"), world("CartPole-v1")
    first = begin(together)["observation"]
    assert np.array_equal(begin(apart, [2])["observation"], first[[2]])
    assert np.array_equal(begin(apart, [1, 0])["observation"], first[[1, 0]])
    assert row(play(together, 30), 0) == row(play(apart, 30), 0)


def test_a_dead_row_is_not_stepped() -> None:
    """Stepping before a reset, or over an ended row, is refused."""
    made = world("CartPole-v1?max_episode_steps=2")
    begin(made, [0, 1])
    with pytest.raises(AssertionError, match="reset before"):
        made.step(actions(made, 0))
    begin(made, [2])
    made.step(actions(made, 0))
    made.step(actions(made, 1))
    with pytest.raises(AssertionError, match="reset before"):
        made.step(actions(made, 2))


@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5", "Pong-v5", FOOTBALL])
def test_a_time_limit_truncates(name: str) -> None:
    """The clock's end is told apart from an end."""
    made = world(f"{name}?max_episode_steps=5")
    limit = 6 if name == FOOTBALL else 5  # football lets one step more pass
    assert made.traits.time_limit == limit
    begin(made)
    steps = play(made, limit)
    assert not any(step.terminated.any() for step in steps)
    assert [step.truncated.tolist() for step in steps] == [[False] * 3] * (limit - 1) + [[True] * 3]


def test_an_ended_atari_game_terminates_even_at_its_limit() -> None:
    """In the one step in which a game is over and its time is up, the game's end wins."""
    fire = np.ones((1, 1), np.int64)

    def last_step(limit: int) -> BatchedStep:
        made = world(f"Breakout-v5?max_episode_steps={limit}", replicas=1)
        begin(made)
        while True:
            step = made.step(fire)
            if step.terminated[0] or step.truncated[0]:
                return step

    over = last_step(5000)
    length = int(over.facts["length"][0])
    assert over.facts["lives"][0] == 0
    for limit, ends in ((length, (True, False)), (length - 1, (False, True))):
        step = last_step(limit)
        assert (step.terminated[0], step.truncated[0]) == ends


def test_football_scores_and_ends() -> None:
    """In front of the empty goal a shot scores: reward, score and a termination say so."""
    made = world(FOOTBALL, replicas=1)
    begin(made)
    right, shot = 5, 12
    for number in range(400):
        step = made.step(np.array([[shot if number == 12 else right]]))
        if step.terminated[0] or step.truncated[0]:
            break
    assert (step.terminated[0], step.truncated[0]) == (True, False)
    assert step.reward[0, 0] == step.facts["return"][0] == step.facts["score"][0] == 1.0
    assert set(np.unique(step.observation["observation"])) <= {0, 255}


def test_pictures_are_single_frames_channel_last() -> None:
    """Stacking is the machine's, and a picture's channels come last as in every other world."""
    assert world("Pong-v5").spaces.observation["observation"].shape == (84, 84, 1)
    assert world(FOOTBALL).spaces.observation["observation"].shape == (72, 96, 4)


def test_what_is_returned_is_the_callers() -> None:
    """Later steps change nothing that was returned before."""
    made = world("Pong-v5")
    kept = [(begin(made)["observation"], None)]
    kept += [(step.observation["observation"], step.reward) for step in play(made, 50)]
    copies = [(frame.copy(), None if reward is None else reward.copy()) for frame, reward in kept]
    play(made, 50)
    for (frame, reward), (frame_then, reward_then) in zip(kept, copies, strict=True):
        assert np.array_equal(frame, frame_then)
        assert reward is None or np.array_equal(reward, reward_then)


def test_nested_observations_have_dotted_names() -> None:
    """A dict of arrays is flattened, truth values become 0 and 1, counts become choices."""
    made = world("Maze-v0")
    spaces = made.spaces.observation
    assert spaces["walls"] == Box((10, 10), "int8", 0, 1)
    assert isinstance(spaces["agent_position.row"], Discrete)
    assert begin(made)["agent_position.row"].dtype == np.int64
    assert isinstance(world("BinPack-v2").spaces.action, MultiDiscrete)


def test_bounds_that_nobody_declared_are_infinite() -> None:
    """EnvPool's smallest and largest C++ numbers are no bounds; declared ones are kept."""
    swim = world("FishSwim-v1").spaces.observation["velocity"]
    assert (swim.low, swim.high) == (-np.inf, np.inf)  # type: ignore[union-attr]
    car = world("CarRacing-v3").spaces.action
    assert car == Box((3,), "float32", (-1.0, 0.0, 0.0), 1.0)
    assert family._bound(np.array([[0, 0], [1, 2]])) == ((0.0, 0.0), (1.0, 2.0))


def test_traits_are_the_tasks_own() -> None:
    """Frame skip and clock come from the task, and its seeds are taken once."""
    pong = world("Pong-v5?frame_skip=2").traits
    assert (pong.frame_skip, pong.time_limit, pong.reseeds) == (2, 27000, False)
    assert world("Blackjack-v1").traits.time_limit is None
    assert registry.parse("envpool:Pong-v5").batched


def test_names_are_envpools_own() -> None:
    """The installed EnvPool lists and checks its tasks, in any capitals."""
    names = registry.family("envpool").names()
    assert set(family.EXAMPLES) <= set(names)
    assert sum(name.startswith("gfootball/") for name in names) == 18
    assert registry.parse("envpool:cartpole-V1").name == "CartPole-v1"
    assert registry.parse("envpool:").name == family.DEFAULT
    with pytest.raises(BadName, match="did you mean 'HalfCheetah-v"):
        registry.parse("envpool:HalfCheeta-v5")


def test_without_envpool_any_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names cannot be checked where EnvPool is missing: examples are listed."""
    monkeypatch.setattr(family.importlib.util, "find_spec", lambda _: None)
    family._registered.cache_clear()
    try:
        assert registry.parse("envpool:Whatever-v0").name == "Whatever-v0"
        assert registry.family("envpool").names() == family.EXAMPLES
    finally:
        monkeypatch.undo()
        family._registered.cache_clear()


def test_what_a_task_lacks_is_refused() -> None:
    """A setting the task does not have and a task for several players get a sentence."""
    with pytest.raises(BadOption, match="envpool:CartPole-v1 has no setting 'frame_skip'"):
        world("CartPole-v1?frame_skip=4")
    with pytest.raises(BadName, match="several players"):
        world("Go9x9-v1")
    with pytest.raises(BadName, match="actions of a kind"):
        world("SearchAndRescue-v0")


def test_a_task_that_cannot_be_built_says_why() -> None:
    """What EnvPool raises while it builds reaches the user as one sentence."""
    with pytest.raises(BrokenSimulator, match=r"envpool cannot make HalfCheetah-v5: .+"):
        family._build("HalfCheetah-v5", _Wrong(), Place())  # type: ignore[arg-type]


class _Wrong:
    """Options whose type EnvPool itself refuses."""

    def __init__(self) -> None:
        self.threads = 0
        self.frame_skip = "frame_skip"
