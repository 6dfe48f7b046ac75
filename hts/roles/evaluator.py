"""The evaluator: plays whole episodes with one version, and says how they went.

The episodes are the same for every policy: number e begins with a seed that follows from the run's
seed and e, and its actions are drawn with keys of their own, so that nothing here is ever seen in
training. What the policy sees, its recurrent state and its answers come from the storage and the
actor that training uses, so that they are the same; rewards are the world's own, and the statistics
of observations stay those of the version.

A row is a place where one episode after the other is played. How many rows there are changes no
number: an episode depends on its own number alone.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hts.config import Experiment
from hts.determinism import settings
from hts.determinism.keys import Purpose, episode_seed, keys
from hts.machine import Sizes
from hts.memory.storage import Rows, Storage
from hts.memory.versions import Version
from hts.models.bounds import taken_in
from hts.models.distributions import Greedy
from hts.models.exploring import Taught
from hts.models.policy import Policy
from hts.roles.actor import Actor
from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedWorld,
    Observation,
    Spaces,
    Traits,
    World,
)


@dataclass(frozen=True)
class Played:
    """One episode, from its begin to the end of its game."""

    episode: int
    total: float
    length: int
    score: float | None


Watch = Callable[[int, int, Observation, float | None], None]
"""Called with the episode that was begun or stepped, its row, what is seen there: (agents, ...),
and the reward of the step, a mean over agents; None where it was begun."""


class Simulators(ABC):
    """Worlds in rows, each of which can be begun by itself."""

    spaces: Spaces
    traits: Traits
    rows: int
    frame_rate: float

    @abstractmethod
    def begin(self, row: int, seed: int) -> Observation:
        """Begin an episode in this row: (1, agents, ...)."""

    @abstractmethod
    def step(self, rows: Array, action: Array) -> BatchedStep:
        """One step of these rows, and of no other that anybody looks at."""

    @abstractmethod
    def facts(self, place: int, result: BatchedStep) -> Mapping[str, float]:
        """What is known of the episode that ended in this place of the last result."""

    @abstractmethod
    def frame(self, row: int) -> Array | None:
        """A picture of this row as it is now, where its world can make one."""

    @abstractmethod
    def close(self) -> None:
        """Give back the worlds."""


class Singles(Simulators):
    """A world for each row."""

    def __init__(self, worlds: Sequence[World]) -> None:
        self.spaces, self.traits, self.rows = worlds[0].spaces, worlds[0].traits, len(worlds)
        self.frame_rate = worlds[0].frame_rate
        self._worlds = worlds
        self._known: list[Mapping[str, float]] = []

    def begin(self, row: int, seed: int) -> Observation:
        return {name: array[None] for name, array in self._worlds[row].reset(seed).items()}

    def step(self, rows: Array, action: Array) -> BatchedStep:
        taken = zip(rows, action.copy(), strict=True)
        results = [self._worlds[row].step(each) for row, each in taken]
        seen, rewards, terminated, truncated, known = zip(*results, strict=True)
        self._known = list(known)
        together = {name: np.stack([each[name] for each in seen]) for name in seen[0]}
        return BatchedStep(
            together, np.stack(rewards), np.array(terminated), np.array(truncated), {}
        )

    def facts(self, place: int, result: BatchedStep) -> Mapping[str, float]:
        return self._known[place]

    def frame(self, row: int) -> Array | None:
        return self._worlds[row].frame()

    def close(self) -> None:
        for world in self._worlds:
            world.close()


class Together(Simulators):
    """A batched world, all of whose rows are stepped in one call.

    A row that nobody plays in is begun again whenever it has ended, and takes the action of one in
    which somebody does.
    """

    def __init__(self, world: BatchedWorld) -> None:
        self.spaces, self.traits, self.rows = world.spaces, world.traits, world.replicas
        self.frame_rate = world.frame_rate
        self._world = world
        self._running = np.zeros(world.replicas, np.bool_)

    def begin(self, row: int, seed: int) -> Observation:
        self._running[row] = True
        return self._world.reset(np.array([row]), np.array([seed], np.uint64))

    def step(self, rows: Array, action: Array) -> BatchedStep:
        idle = np.flatnonzero(~self._running)
        if len(idle):
            self._world.reset(idle, idle.astype(np.uint64) * np.uint64(2) + np.uint64(1))
        whole = np.repeat(action[:1], self.rows, axis=0)
        whole[rows] = action
        result = self._world.step(whole)
        self._running = ~(result.terminated | result.truncated)
        seen = {name: array[rows] for name, array in result.observation.items()}
        facts = {name: array[rows] for name, array in result.facts.items()}
        ends = (result.terminated[rows], result.truncated[rows])
        return BatchedStep(seen, result.reward[rows], *ends, facts)

    def facts(self, place: int, result: BatchedStep) -> Mapping[str, float]:
        return {name: float(array[place]) for name, array in result.facts.items()}

    def frame(self, row: int) -> Array | None:
        return self._world.frame(row)

    def close(self) -> None:
        self._world.close()


class Evaluator:
    """Plays the episodes of one experiment; `padding` and `packs` are how actors answer without
    changing a bit.

    Where they cannot (0), there has to be one row, which then has the same place in every batch.
    """

    def __init__(
        self,
        experiment: Experiment,
        simulators: Simulators,
        *,
        padding: int,
        packs: bool = False,
        greedy: bool = False,
    ) -> None:
        assert padding or simulators.rows == 1, "rows that depend on their place are played alone"
        spaces = simulators.spaces
        sizes = Sizes.of(experiment, spaces)
        sizes = dataclasses.replace(sizes, replicas=simulators.rows, steps=1, finals=1)
        self.simulators = simulators
        self._experiment = experiment
        self._storages = (Storage(sizes, spaces), Storage(sizes, spaces))
        self._greedy = greedy
        self._packs = packs
        self._actor = Actor(self._policy, padding, simulators.rows)
        self._taken = taken_in(spaces, experiment.bounds)
        self._playing: dict[int, int] = {}  # row to the number of its episode
        self._life = np.zeros(simulators.rows, np.int64)  # parts of a game that were ended before

    def play(
        self, version: Version, episodes: Iterable[int], watch: Watch | None = None
    ) -> list[Played]:
        """Play the episodes of these numbers; how each went, in their order."""
        waiting = deque(episodes)
        played: dict[int, Played] = {}
        self._playing = {}
        free = list(range(self.simulators.rows))
        while True:
            for row in free:
                if waiting:
                    self._playing[row] = waiting.popleft()
                    self._life[row] = 0
                    self._begin(row, watch)
            if not self._playing:
                return [played[number] for number in sorted(played)]
            free = []
            for row, facts in self._step(version, watch):
                if facts.get("game_over", 1.0):
                    number = self._playing.pop(row)
                    played[number] = _played(number, facts)
                    free.append(row)
                else:
                    self._life[row] += 1
                    self._begin(row, watch)

    def _begin(self, row: int, watch: Watch | None) -> None:
        """Begin the episode of this row, or, where an end for learning was no end of its game, the
        next part of it."""
        number = self._playing[row]
        seed = episode_seed(self._experiment.seed, number, 0, Purpose.EVALUATION)
        seen = self.simulators.begin(row, seed)
        _restore_settings()
        storage = self._storages[0]
        storage.write_frame([row], 0, seen)
        storage.age[row, 0] = 0
        if watch is not None:
            watch(number, row, {name: array[0] for name, array in seen.items()}, None)

    def _step(self, version: Version, watch: Watch | None) -> list[tuple[int, Mapping[str, float]]]:
        """One step of every episode; the rows whose episode ended, and what is known of it."""
        rows = np.array(sorted(self._playing))
        now, then = self._storages
        result = self.simulators.step(rows, self._taken(self._act(version, rows)))
        _restore_settings()
        now.write_frame(rows, 1, result.observation)
        now.age[rows, 1] = now.age[rows, 0] + 1
        then.take_over(now, rows)
        self._storages = (then, now)
        if watch is not None:
            for place, row in enumerate(rows):
                seen = {name: array[place] for name, array in result.observation.items()}
                watch(self._playing[row], int(row), seen, float(result.reward[place].mean()))
        ended = np.flatnonzero(result.terminated | result.truncated)
        return [(int(rows[place]), self.simulators.facts(int(place), result)) for place in ended]

    def _act(self, version: Version, rows: Array) -> Array:
        """The actions of these rows, drawn with the keys of their episodes."""
        storage = self._storages[0]
        numbers = np.array([self._playing[row] for row in rows])
        storage.key[rows, 0] = keys(
            self._experiment.seed,
            Purpose.EVALUATION_ACTION,
            numbers,
            self._life[rows],
            storage.age[rows, 0],
        )
        storage.version = version.number
        self._actor.act(storage, Rows(rows, np.zeros(len(rows), np.int64)), version)
        return np.asarray(storage.action[rows, 0])

    def _policy(self) -> Policy:
        policy = Policy(self._experiment, self.simulators.spaces, packs=self._packs)
        if self._greedy or isinstance(policy.distribution, Taught):
            policy.distribution = Greedy(policy.distribution)
        return policy


def _restore_settings() -> None:
    """Undo what simulators have changed of the settings that reach arithmetic, as executors do,
    which also report it."""
    if not settings.are_kept():
        settings.restore()


def _played(number: int, facts: Mapping[str, float]) -> Played:
    """A game's own return, where ends for learning are not its end."""
    total = facts.get("game_return", facts["return"])
    length = facts.get("game_length", facts["length"])
    return Played(number, float(total), int(length), facts.get("score"))
