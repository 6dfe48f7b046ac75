"""The serial runner: every role in one process, in a fixed order.

It is the reference that every other arrangement of the same roles must equal, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hts.config import Machine
from hts.determinism.digest import rollout_digest
from hts.memory.desk import Desk
from hts.memory.storage import Storage
from hts.memory.versions import Version
from hts.roles.actor import Actor
from hts.roles.blocks import Episode
from hts.roles.executor import Executor, Part, Partners
from hts.roles.learner import Learner
from hts.runtime.assemble import Plan, Updated
from hts.runtime.crew import make_blocks
from hts.runtime.jitter import Jitter
from hts_envs.registry import Spec


class SerialRun:
    """One run, from its first observation to its last update."""

    def __init__(self, found: Plan, spec: Spec) -> None:
        self.experiment = found.experiment
        self.strategy = found.strategy()
        self._keep = found.keep
        self._pause = Jitter(found.jitter, "serial")
        blueprint = found.blueprint(Machine(executors=1, actors=0, blocks=1))
        sizes, spaces = blueprint.sizes, blueprint.spaces
        self.storages = (Storage(sizes, spaces), Storage(sizes, spaces))
        self.desk = Desk(blueprint.crew, sizes.steps)
        self.actor = Actor(found.policy, self.strategy.padding, sizes.replicas)
        self.learner = Learner(self.experiment, found.policy())
        self.versions = found.first_versions()
        self.digest = found.digest()
        self.replaced: list[str] = []  # there is nobody who could be
        self._episodes: list[Episode] = []
        self._partners = Partners(
            asked=self._asked, told=self, pause=self._pause, answering=self._answer
        )
        self.blocks = make_blocks(self.experiment, spec, spaces, list(blueprint.crew.blocks))
        self.executor = Executor(0, self.blocks, self.desk, self.storages, self._partners)

    def __iter__(self) -> Iterator[Updated]:
        """Rollout after rollout, each with the version that the schedule names."""
        for rollout in range(self.experiment.updates):
            self.desk.may_begin = rollout
            while self.executor.advance():
                pass
            assert self.desk.is_complete(rollout), "I2: learnt from when it is complete"
            behaviour, newest = self.versions[0], self.versions[-1]
            storage = self.storages[rollout % 2]
            if self._keep is not None:
                self._keep.complete(rollout, storage)
            made, told = self.learner.update(storage, behaviour, newest, rollout)
            if self._keep is not None:
                self._keep.learnt(rollout, made.parameters.numpy())
            parts = self.desk.parts(rollout)
            link = self.digest.fold(rollout_digest(parts), made.parameters.numpy().tobytes())
            self.versions = [*self.versions[1:], made]
            ended, self._episodes = self._episodes, []
            yield Updated(link, told, sorted(ended, key=Episode.order), parts)

    def _answer(self, blocks: Sequence[int]) -> None:
        self._pause("answer")
        self.actor.answer(self.desk, blocks, self.storages, self._read)

    def _read(self, number: int) -> Version:
        assert self.versions[0].number == number, "I3: a rollout is made with its own version"
        return self.versions[0]

    def _asked(self, block: int) -> None:
        """Nobody has to be woken: the executor answers itself."""

    def ended(self, rollout: int, episodes: list[Episode]) -> None:
        """Episodes of the rollout that is being filled."""
        self._episodes += episodes

    def part(self, at: Part) -> None:
        """There is one block: `filled` follows."""

    def filled(self, rollout: int) -> None:
        """The learner's turn comes."""

    @property
    def chain(self) -> str:
        """The digest so far."""
        return self.digest.chain

    def time_budget(self) -> str:
        """Where time went: in one process, everything waits for everything."""
        return "one process: executor and learner take turns"

    def close(self) -> None:
        self.executor.close()
