"""An evaluator with its worlds, and what it is to play.

Networks compute on the processor here, whatever the run computes on, so that a policy has the same
evaluation wherever it is evaluated, and takes nothing from a GPU that is learning.
"""

from __future__ import annotations

from typing import Any

from hts.config import Experiment
from hts.determinism import numerics
from hts.determinism.keys import Purpose, key
from hts.memory.versions import Version
from hts.report import evaluations
from hts.report.policies import Policy
from hts.roles.evaluator import Evaluator, Played, Simulators, Singles, Together, Watch
from hts.runtime.assemble import plan
from hts_envs.contract import SEED_LIMIT, BatchedWorld, Place, World
from hts_envs.errors import BrokenSimulator
from hts_envs.registry import Spec, make, parse

_BESIDE = 10
"""Episodes that are played side by side, where their worlds can all be begun by a seed."""


class Evaluating:
    """Evaluates policies of one experiment on the same episodes, as many as are asked for."""

    def __init__(
        self, experiment: Experiment, episodes: int, *, greedy: bool = False, shown: bool = False
    ) -> None:
        assert episodes > 0, "a policy is evaluated on at least one episode"
        self._experiment = experiment
        self._episodes = episodes
        self._greedy = greedy
        self._shown = shown
        self._spec = parse(experiment.env)
        self._strategy = plan(experiment, self._spec, "cpu").strategy()
        self._evaluator: Evaluator | None = None

    def line(self, policy: Policy) -> dict[str, Any]:
        """What `eval.jsonl` says about this policy."""
        steps = policy.update * self._experiment.rows
        return evaluations.line(policy.update, steps, self.play(policy))

    def play(self, policy: Policy, watch: Watch | None = None) -> list[Played]:
        """How its episodes went, in worlds that are as if nobody had played in them."""
        evaluator = self.evaluator
        played = evaluator.play(_version(policy), range(self._episodes), watch)
        if not evaluator.simulators.traits.reseeds:
            self.close()  # it would go on from where it is
        return played

    @property
    def evaluator(self) -> Evaluator:
        """Who plays, with worlds."""
        if self._evaluator is None:
            self._evaluator = Evaluator(
                self._experiment,
                self._worlds(),
                padding=self._strategy.padding,
                packs=self._strategy.packs,
                greedy=self._greedy,
            )
        return self._evaluator

    def close(self) -> None:
        """Give back the worlds."""
        if self._evaluator is not None:
            self._evaluator.simulators.close()
            self._evaluator = None

    def _worlds(self) -> Simulators:
        """As many as are useful; one for each episode where its place decides what it is."""
        seed = self._experiment.seed
        rows = min(self._episodes, _BESIDE) if self._strategy.padding else 1
        made = _simulators(self._spec, range(rows), seed, shown=self._shown)
        if rows > 1 and not made.traits.reseeds and rows < self._episodes:
            made.close()
            made = _simulators(self._spec, range(self._episodes), seed, shown=self._shown)
        numerics.settle()  # a simulator may be made of torch, and have arranged it for itself
        return made


def _simulators(spec: Spec, rows: range, seed: int, *, shown: bool) -> Simulators:
    """Worlds for these rows; what they are built with is not what training builds them with."""
    if spec.batched:
        together = make(spec, Place(0, len(rows), _built_with(seed, 0), shown))
        assert isinstance(together, BatchedWorld), f"{spec.canonical()} said it was batched"
        return Together(together)
    worlds: list[World] = []
    for row in rows:
        try:
            world = make(spec, Place(row, 1, _built_with(seed, row), shown))
        except BrokenSimulator:
            if not worlds:
                raise
            break  # a process may hold only so many of them
        assert isinstance(world, World), f"{spec.canonical()} said it was single"
        worlds.append(world)
    return Singles(worlds)


def _built_with(seed: int, row: int) -> int:
    return key(seed, Purpose.BUILD, row, episode=1) % SEED_LIMIT


def _version(policy: Policy) -> Version:
    return Version.of(policy.update, policy.arrays)
