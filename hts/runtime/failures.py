"""Simulators that fail in a run: each failure is written to a file, and tried once more.

The run rebuilds the simulator from its seed and its actions and repeats the step. A failure that
comes again in the same place ends the run, since it would come for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hts.errors import RoleFailed
from hts.report.say import say
from hts.runtime.assemble import Plan
from hts.runtime.heard import Heard
from hts.runtime.shared import Shared
from hts.soundness.case import Case, Failure, Kind, Question


class Failures:
    """The failures of a run so far, by their places."""

    def __init__(self, found: Plan, shared: Shared, heard: Heard) -> None:
        self._found = found
        self._shared = shared
        self._heard = heard
        self._crew = heard.blueprint.crew
        self._places: set[tuple[Any, ...]] = set()

    def once(self, failure: Exception, *place: Any) -> None:
        """Raise the failure if one was in this place before."""
        if place in self._places:
            raise failure
        self._places.add(place)

    def raised(self, failure: RoleFailed) -> None:
        """Write down what a simulator raised; raise it if it cannot be tried once more.

        A rebuild that raises has a place of its own for each of its steps: one that raises at
        random comes further the next time.
        """
        if failure.replica is None:
            raise failure
        block = self._crew.block_with(failure.replica)
        row = failure.replica - self._crew.blocks[block].start
        path = self.write(block, Failure(Kind.RAISES, failure.what), row)
        short = failure.what.rstrip().splitlines()[-1]
        if failure.rebuilding is None and not short.startswith(f"replica {failure.replica},"):
            short = f"{self._place(block, failure.replica)}: {short}"
        named = RoleFailed(
            failure.role, failure.what, failure.replica, failure.rebuilding, short=short
        )
        rebuilding = () if failure.rebuilding is None else (failure.rebuilding,)
        asked = int(self._shared.desk.asked[block])
        self.once(_repeatable(named, path), block, asked, *rebuilding)

    def died(self, death: RoleFailed, blocks: Sequence[int], *place: Any) -> None:
        """Write down the steps in which a process died; raise if it died there before."""
        paths = [self.write(block, Failure(Kind.DIES, death.what)) for block in blocks]
        self.once(_repeatable(death, paths[0] if paths else None), *place)

    def _place(self, block: int, replica: int) -> str:
        """Return the step that a replica's simulator has to take, in words."""
        desk = self._shared.desk
        if not desk.asked[block]:
            return f"replica {replica}, before its first step"
        rollout, step = desk.question(block)
        storage = self._shared.storages[rollout % 2]
        age, episode = int(storage.age[replica, step]), int(storage.episode[replica, step])
        return f"replica {replica}, step {age + 1} of episode {episode}"

    def strayed(self, said: dict[str, Any]) -> None:
        """Say and write down which episodes could not be rebuilt, and were cut short."""
        marks = self._heard.marks[-len(said["strayed"]) :]
        for replica, mark in zip(said["strayed"], marks, strict=True):
            say(f"hts: {mark}; its next episode begins, and the digest is marked as interrupted")
            block = self._crew.block_with(replica["replica"])
            row = replica["replica"] - self._crew.blocks[block].start
            at = (said["rollout"], said["step"])
            self.write(block, Failure(Kind.STRAYS, mark), row, at)

    def write(
        self,
        block: int,
        failure: Failure,
        row: int | None = None,
        at: tuple[int, int] | None = None,
    ) -> Path | None:
        """Write a file from which `hts-check --replay` lets a block's simulator fail again."""
        folder, desk = self._found.cases, self._shared.desk
        if folder is None:
            return None
        rollout, step = at or desk.question(block)
        question = None
        if desk.asked[block]:
            storage = self._shared.storages[rollout % 2]
            question = Question(storage, rollout, step, self._heard.past[block])
        replicas = self._crew.blocks[block]
        number = replicas.start + (row or 0)
        path = folder / f"{failure.kind}-replica{number}-rollout{rollout}-step{step}.safetensors"
        try:
            folder.mkdir(exist_ok=True)
            Case.of(self._found.experiment, replicas, question, failure, row=row).write(path)
        except OSError as error:
            say(f"hts: {path} could not be written ({error.strerror})")
            return None
        return path


def _repeatable(failure: RoleFailed, path: Path | None) -> RoleFailed:
    """Return the same failure with the command that repeats it, if a file was written."""
    if path is None:
        return failure
    again = f"hts-check --replay {path} lets it fail again"
    what, short = f"{failure.what.rstrip()}\n\n{again}", f"{failure.short}; {again}"
    return type(failure)(failure.role, what, failure.replica, failure.rebuilding, short=short)
