"""Deliberately broken worlds, one fault each, and the sound ones that they are made from.

The sound world draws a walk: its observation holds the sums of what was drawn so far, an episode
ends when one of them leaves the box or by the clock. All of it follows from the episode's seed.
Each is reached as `python:tests.fakes.broken_worlds:Name`.
"""

from __future__ import annotations

import os
import pickle
import time
from typing import Any

import numpy as np

from hts_envs.contract import (
    Array,
    BatchedStep,
    BatchedTally,
    BatchedWorld,
    Box,
    Discrete,
    MultiDiscrete,
    Observation,
    Spaces,
    Step,
    Tally,
    Traits,
    World,
)
from hts_envs.randomness import fold, fold_rows, uniform

LIMIT = 40
WIDTH = 3


class Sound(World):
    """A walk of three numbers that nothing is wrong with."""

    def __init__(self) -> None:
        self.spaces = Spaces({"observation": Box((WIDTH,), "float32", -50.0, 50.0)}, Discrete(4))
        self.traits = Traits(snapshots=True, time_limit=LIMIT)
        self.description = "a walk of three numbers"
        self.tally = Tally()
        self.seed = 0
        self.place = np.zeros((1, WIDTH), np.float64)

    def drawn(self) -> Array:
        """What this step adds to the walk."""
        return uniform(np.array([fold(self.seed, self.tally.length)], np.uint64), WIDTH) - 0.5

    def observe(self) -> Observation:
        return {"observation": self.place.astype(np.float32)}

    def reset(self, seed: int) -> Observation:
        self.seed = seed
        self.tally.start()
        self.place = np.zeros((1, WIDTH)) + self.drawn()
        return self.observe()

    def step(self, action: Array) -> Step:
        self.place = self.place + self.drawn() + 0.1 * float(action[0])
        reward = np.array([self.place[0, 0]], np.float32)
        self.tally.add(float(reward[0]))
        out = bool(np.abs(self.place).max() > 5.0)
        late = self.tally.length >= LIMIT and not out
        facts = self.tally.facts() if out or late else {}
        return Step(self.observe(), reward, out, late, facts)

    def state(self) -> tuple[Any, ...]:
        return (self.seed, self.place, self.tally)

    def take(self, state: tuple[Any, ...]) -> None:
        self.seed, self.place, self.tally = state

    def snapshot(self) -> bytes:
        return pickle.dumps(self.state())

    def restore(self, state: bytes) -> Observation:
        self.take(pickle.loads(state))
        return self.observe()


class WrongDtype(Sound):
    def observe(self) -> Observation:
        return {"observation": self.place.copy()}


class WrongShape(Sound):
    def observe(self) -> Observation:
        return {"observation": self.place.astype(np.float32)[:, :2]}


class OutOfRange(Sound):
    def observe(self) -> Observation:
        place = self.place.astype(np.float32)
        place[0, 1] += 100.0 * (self.tally.length == 3)
        return {"observation": place}


class MissingField(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.spaces = Spaces({**self.spaces.observation, "map": Box((2,))}, Discrete(4))


class UnknownField(Sound):
    def observe(self) -> Observation:
        return {**super().observe(), "extra": np.zeros((1, 2), np.float32)}


class ListObservation(Sound):
    def observe(self) -> Observation:
        return [0.0, 1.0, 2.0]  # type: ignore[return-value]


class FourValues(Sound):
    def step(self, action: Array) -> Step:
        return tuple(super().step(action))[:4]  # type: ignore[return-value]


class FloatReward(Sound):
    def step(self, action: Array) -> Step:
        return super().step(action)._replace(reward=np.array([1.0]))


class PlainReward(Sound):
    def step(self, action: Array) -> Step:
        return super().step(action)._replace(reward=1.0)  # type: ignore[arg-type]


class ObjectObservation(Sound):
    def observe(self) -> Observation:
        return {"observation": np.array([["a", None, 1]], dtype=object)}


class NumberFlags(Sound):
    def step(self, action: Array) -> Step:
        step = super().step(action)
        return step._replace(terminated=int(step.terminated))  # type: ignore[arg-type]


class ChangesAction(Sound):
    def step(self, action: Array) -> Step:
        step = super().step(action)
        action += 1
        return step


class HiddenRandomness(Sound):
    """Draws from numpy's global generator, a thousandth of the time."""

    def step(self, action: Array) -> Step:
        if self.tally.length == 5:
            self.place = self.place + np.random.random()
        return super().step(action)


class SeedIgnored(Sound):
    def reset(self, seed: int) -> Observation:
        return super().reset(7)


class Constant(Sound):
    """Nothing is ever seen of what goes on inside."""

    def observe(self) -> Observation:
        return {"observation": np.zeros((1, WIDTH), np.float32)}


class HistoryDependent(Sound):
    """Something of the first episode is left in the next ones."""

    def __init__(self) -> None:
        super().__init__()
        self.played = 0

    def reset(self, seed: int) -> Observation:
        self.played += 1
        return super().reset(seed)

    def step(self, action: Array) -> Step:
        self.place = self.place + 0.01 * (self.played > 1)
        return super().step(action)


class NanObservation(Sound):
    def observe(self) -> Observation:
        place = self.place.astype(np.float32)
        place[0, 0] = np.nan if self.tally.length == 2 else place[0, 0]
        return {"observation": place}


class NanReward(Sound):
    def step(self, action: Array) -> Step:
        step = super().step(action)
        return step._replace(reward=step.reward * np.float32(np.nan))


class InfiniteReward(Sound):
    def step(self, action: Array) -> Step:
        step = super().step(action)
        return step._replace(reward=step.reward + np.float32(np.inf))


class Aliasing(Sound):
    """Writes every observation into one buffer, and hands that out."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros((1, WIDTH), np.float32)

    def observe(self) -> Observation:
        self.buffer[:] = self.place
        return {"observation": self.buffer}


class TwoBuffers(Sound):
    """The same with two buffers in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = np.zeros((2, 1, WIDTH), np.float32)
        self.calls = 0

    def observe(self) -> Observation:
        self.calls += 1
        self.buffers[self.calls % 2] = self.place
        return {"observation": self.buffers[self.calls % 2]}


class BothFlags(Sound):
    def step(self, action: Array) -> Step:
        step = super().step(action)
        over = step.terminated or step.truncated
        return step._replace(terminated=over, truncated=over)


class NeverEnds(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.traits = Traits(snapshots=True)

    def step(self, action: Array) -> Step:
        step = super().step(action)
        self.place = np.clip(self.place, -4.0, 4.0)
        return step._replace(terminated=False, truncated=False, facts={})


class ClockIgnored(NeverEnds):
    """Declares a time limit and goes on after it."""

    def __init__(self) -> None:
        super().__init__()
        self.traits = Traits(time_limit=LIMIT)


class NoFacts(Sound):
    def step(self, action: Array) -> Step:
        return super().step(action)._replace(facts={"score": 1.0})


class WrongFacts(Sound):
    def step(self, action: Array) -> Step:
        step = super().step(action)
        facts = {"return": step.facts["return"] + 5, "length": 3.0} if step.facts else {}
        return step._replace(facts=facts)


class SlowReset(Sound):
    def reset(self, seed: int) -> Observation:
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        return super().reset(seed)


class RaisesAtStep(Sound):
    def step(self, action: Array) -> Step:
        if self.tally.length == 16:
            raise ZeroDivisionError("the ball left the universe")
        return super().step(action)


class RaisesAtReset(Sound):
    def reset(self, seed: int) -> Observation:
        raise ConnectionError("the engine does not answer")


class RaisesWhenBuilt(Sound):
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class RaisesWhenClosed(Sound):
    def close(self) -> None:
        raise OSError("already gone")


class ForgetfulSnapshot(Sound):
    """Forgets how far the clock is."""

    def take(self, state: tuple[Any, ...]) -> None:
        super().take(state)
        self.tally.length = 0


class ForgetsElsewhere(Sound):
    """Keeps a part of its state to itself: right where it was taken, wrong in another world."""

    def state(self) -> tuple[Any, ...]:
        self.kept = self.seed
        return super().state()

    def take(self, state: tuple[Any, ...]) -> None:
        super().take(state)
        self.seed = getattr(self, "kept", 0)


class WrongRestore(Sound):
    def restore(self, state: bytes) -> Observation:
        seen = super().restore(state)
        return {name: array + 1 for name, array in seen.items()}


class SnapshotDisturbs(Sound):
    def snapshot(self) -> bytes:
        state = super().snapshot()
        self.place = self.place + 0.1
        return state


class SnapshotPromised(Sound):
    """Says that it has snapshots, and has none."""

    def snapshot(self) -> bytes:
        return World.snapshot(self)


class SnapshotRaises(Sound):
    def snapshot(self) -> bytes:
        raise MemoryError("too large")


class SnapshotText(Sound):
    def snapshot(self) -> bytes:
        return "state"  # type: ignore[return-value]


class OtherInEachProcess(Sound):
    """The hash of a text is another in each process, and so are the episodes."""

    def reset(self, seed: int) -> Observation:
        return super().reset(hash(f"episode {seed}") % 2**31)


class DiesElsewhere(Sound):
    """Works only in the process that asks first."""

    def reset(self, seed: int) -> Observation:
        if os.environ.get("PYTHONHASHSEED") in ("27182", "31415"):
            os._exit(3)
        return super().reset(seed)


class FailsElsewhere(Sound):
    def reset(self, seed: int) -> Observation:
        if os.environ.get("PYTHONHASHSEED") in ("27182", "31415"):
            raise PermissionError("one engine only")
        return super().reset(seed)


class ResetsItself(Sound):
    """Begins the next episode in the step after an end."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False

    def take(self, state: tuple[Any, ...]) -> None:
        super().take(state)
        self.over = False

    def reset(self, seed: int) -> Observation:
        self.over = False
        return super().reset(seed)

    def step(self, action: Array) -> Step:
        if self.over:
            self.reset(self.seed + 2)
        step = super().step(action)
        self.over = step.terminated or step.truncated
        return step


class ResetsNothing(Sound):
    """A reset that goes on where the last episode stood."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = False

    def reset(self, seed: int) -> Observation:
        if not self.begun:
            super().reset(seed)
        self.begun = True
        self.tally.start()
        return self.observe()

    def step(self, action: Array) -> Step:
        step = super().step(action)
        self.place = np.clip(self.place, -4.0, 4.0)
        return step._replace(observation=self.observe())


class RefusesAfterEnd(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.over = False

    def take(self, state: tuple[Any, ...]) -> None:
        super().take(state)
        self.over = False

    def reset(self, seed: int) -> Observation:
        self.over = False
        return super().reset(seed)

    def step(self, action: Array) -> Step:
        assert not self.over, "the episode is over"
        step = super().step(action)
        self.over = step.terminated or step.truncated
        return step


class GoesOn(Sound):
    """Forgets that an episode ended unless it is reset."""

    def step(self, action: Array) -> Step:
        step = super().step(action)
        if step.terminated:
            self.place = np.zeros((1, WIDTH))
        return step


class DiesAfterEnd(RefusesAfterEnd):
    def step(self, action: Array) -> Step:
        if self.over:
            os._exit(9)
        return super().step(action)


class OneSeed(Sound):
    """A library that takes a seed only when it is built."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.traits = Traits(reseeds=False)
        self.built = seed
        self.episode = 0

    def reset(self, seed: int) -> Observation:
        self.episode += 1
        return super().reset(fold(self.built, self.episode) >> 1)


class SoundBatch(BatchedWorld):
    """The same walk for many replicas."""

    def __init__(self, replicas: int) -> None:
        self.spaces = Spaces({"observation": Box((WIDTH,), "float32", -50.0, 50.0)}, Discrete(4))
        self.traits = Traits(time_limit=LIMIT)
        self.replicas = replicas
        self.tally = BatchedTally(replicas)
        self.seeds = np.zeros(replicas, np.uint64)
        self.place = np.zeros((replicas, 1, WIDTH))

    def drawn(self) -> Array:
        return uniform(fold_rows(self.seeds, self.tally.length), WIDTH)[:, None, :] - 0.5

    def observe(self) -> Observation:
        return {"observation": self.place.astype(np.float32)}

    def reset(self, rows: Array, seeds: Array) -> Observation:
        self.seeds[rows] = seeds
        self.tally.start(rows)
        self.place[rows] = self.drawn()[rows]
        return {"observation": self.place[rows].astype(np.float32)}

    def step(self, action: Array) -> BatchedStep:
        self.place = self.place + self.drawn() + 0.1 * action[:, :, None]
        reward = self.place[:, :, 0].astype(np.float32)
        self.tally.add(reward[:, 0])
        out = np.abs(self.place).max(axis=(1, 2)) > 5.0
        late = (self.tally.length >= LIMIT) & ~out
        return BatchedStep(self.observe(), reward, out, late, self.tally.facts())


class RowsInOneShape(SoundBatch):
    """Returns all rows from a reset of some."""

    def reset(self, rows: Array, seeds: Array) -> Observation:
        super().reset(rows, seeds)
        return self.observe()


class RowsLeak(SoundBatch):
    """Row 2 sees how many steps row 0 has taken."""

    def observe(self) -> Observation:
        seen = super().observe()
        seen["observation"][2] += 0.001 * float(self.tally.length[0])
        return seen


class OneFlag(SoundBatch):
    def step(self, action: Array) -> BatchedStep:
        return super().step(action)._replace(terminated=np.array(False))


class Talkative(Sound):
    """Prints, as engines do, through Python and below it."""

    def reset(self, seed: int) -> Observation:
        print("hello from Python")
        os.write(1, b"hello from below\n")
        return super().reset(seed)


class GoesElsewhere(Sound):
    """Another walk from its fourth step on."""

    def step(self, action: Array) -> Step:
        if self.tally.length == 3:
            self.place = self.place + 0.25
        return super().step(action)


class Large(Sound):
    """Holds 64 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.ballast = np.ones(2**23)


class Optional(Sound):
    """As many further fields to see as its option says, and actions of two parts."""

    def __init__(self, fields: int = 1) -> None:
        super().__init__()
        self.spaces = Spaces(
            {**self.spaces.observation, **{f"more.{k}": Box((), "uint8") for k in range(fields)}},
            MultiDiscrete((4, 2)),
        )

    def observe(self) -> Observation:
        names = [name for name in self.spaces.observation if name != "observation"]
        return {**super().observe(), **{name: np.zeros(1, np.uint8) for name in names}}

    def step(self, action: Array) -> Step:
        return super().step(action[:, 0])
