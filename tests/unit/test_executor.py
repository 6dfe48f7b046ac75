"""An executor driven step by step: the test is its learner, its actor and its doorbell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from hts.determinism.digest import replica_digest
from hts.errors import WorldFailed
from hts.machine import Sizes
from hts.memory.desk import Crew, Desk
from hts.memory.doorbell import Doorbell
from hts.memory.storage import Storage
from hts.models.bounds import as_drawn
from hts.roles.blocks import Block, Episode, Strayed
from hts.roles.executor import Executor, InTurn, Part, Partners, Past, Stepping
from hts.roles.local import WorldsBlock
from hts.runtime.threads import Threads, Turns
from hts_envs.contract import Array, Observation, Step
from tests.fakes.small_worlds import Act, Scripted

STEPS = 3
SCRIPTS = [[Act(2), Act(3, "truncated")], [Act(1)], [Act(50)], [Act(4, "both")]]
CREW = Crew((range(1), range(1, 3), range(3, 4)), (0, 0, 0), executors=1, actors=1)


@dataclass
class Held(Stepping):
    """Steps are begun, and run when the test says so."""

    begun: dict[int, Callable[[], None]] = field(default_factory=dict)

    def start(self, place: int, step: Callable[[], None]) -> None:
        assert place not in self.begun, "one step of a block at a time"
        self.begun[place] = step

    def is_over(self, place: int) -> bool:
        return place not in self.begun

    def run(self, place: int) -> None:
        self.begun.pop(place)()


class Broken(Scripted):
    """Raises at the second step of its life."""

    def step(self, action: Array) -> Step:
        if self.count >= 2:
            raise OSError("the engine is gone")
        return super().step(action)


class Stage:
    """An executor of three blocks, and everything around it."""

    def __init__(
        self,
        stepping: Stepping,
        *,
        inline: bool = False,
        worlds: list[Scripted] | None = None,
        kind: type[WorldsBlock] = WorldsBlock,
    ) -> None:
        self.worlds = worlds or [Scripted(acts, 1000 * r) for r, acts in enumerate(SCRIPTS)]
        self.stepping = stepping
        sizes = Sizes(4, STEPS, 1, 1)
        self.storages = Storage(sizes, Scripted.spaces), Storage(sizes, Scripted.spaces)
        self.desk = Desk(CREW, STEPS)
        self.asked: list[int] = []
        self.reports: list[tuple[int, list[Episode]]] = []
        self.episodes: dict[int, list[Episode]] = {}
        self.parts: list[Part] = []
        self.answered: list[list[int]] = []
        self.pauses: list[str] = []
        self.lost: list[tuple[int, int, list[Strayed]]] = []
        self.inline = inline
        self.executor = self.another(kind, self.worlds)

    def another(self, kind: type[WorldsBlock], worlds: list[Scripted]) -> Executor:
        """An executor over this memory, with these simulators."""
        blocks: list[Block] = [
            kind([worlds[r] for r in part], part, as_drawn, 7) for part in CREW.blocks
        ]
        answers = self._answers if self.inline else None
        partners = Partners(self.asked.append, self, self.pauses.append, answers, self.stepping)
        return Executor(0, blocks, self.desk, self.storages, partners)

    def ended(self, rollout: int, episodes: list[Episode]) -> None:
        self.episodes[rollout] = [*self.episodes.get(rollout, []), *episodes]

    def part(self, at: Part) -> None:
        self.parts.append(at)

    def filled(self, rollout: int) -> None:
        ended = sorted(self.episodes.pop(rollout, []), key=Episode.order)
        self.reports.append((rollout, ended))

    def strayed(self, rollout: int, step: int, strayed: list[Strayed]) -> None:
        self.lost.append((rollout, step, strayed))

    def _answers(self, blocks: Any) -> None:
        self.answered.append(list(blocks))
        for block in blocks:
            self.desk.answer(block)

    def settle(self) -> None:
        while self.executor.advance():
            pass

    def answer(self, *blocks: int) -> None:
        """An actor's answer, and the executor at work until nothing can be done."""
        for block in blocks:
            self.desk.answer(block)
        self.settle()

    def questions(self) -> list[tuple[int, int]]:
        return [self.desk.question(block) for block in range(3)]


def test_nothing_begins_before_it_may() -> None:
    """No simulator is reset and nothing is asked until the learner has said so."""
    stage = Stage(InTurn())
    assert not stage.executor.advance()
    assert stage.executor.waits_for_version
    assert stage.asked == []
    assert not any(world.seeds for world in stage.worlds)
    stage.desk.may_begin = 0
    assert stage.executor.advance()
    assert not stage.executor.waits_for_version
    assert stage.asked == [0, 1, 2]
    assert stage.questions() == [(0, 0)] * 3
    assert not stage.executor.advance(), "unanswered, no block goes on"


def test_blocks_go_on_by_themselves() -> None:
    """I6: a step follows its own block's answer, whatever the others wait for."""
    stage = Stage(InTurn())
    stage.desk.may_begin = 0
    stage.settle()
    stage.answer(1)
    stage.answer(1)
    stage.answer(2)
    assert stage.questions() == [(0, 0), (0, 2), (0, 1)]
    assert [len(world.shown) for world in stage.worlds] == [1, 3, 1, 1]
    assert stage.asked == [0, 1, 2, 1, 1, 2]


def test_a_block_is_ahead_by_one_rollout_and_no_more() -> None:
    """A fast block fills the other storage while a slow one fills the first; there it waits."""
    stage = Stage(InTurn())
    stage.desk.may_begin = 1
    stage.settle()
    for _ in range(STEPS + 1):
        stage.answer(0)
    assert stage.questions() == [(1, 0), (0, 0), (0, 0)]
    for _ in range(STEPS + 1):
        stage.answer(0)
    assert stage.desk.drained(0), "rollout 2 may not begin yet, and it has asked for nothing"
    assert stage.executor.waits_for_version
    assert stage.reports == []
    assert not stage.desk.is_complete(0)
    for _ in range(STEPS + 1):
        stage.answer(1, 2)
    assert [rollout for rollout, _ in stage.reports] == [0]
    assert stage.desk.is_complete(0)
    assert not stage.desk.is_complete(1)


def play(stage: Stage, rollouts: int, order: list[int]) -> list[list[bytes]]:
    """Answer blocks in this order of preference; returns the hashes of each rollout."""
    hashes: list[list[bytes]] = []
    stage.desk.may_begin = 0
    stage.settle()
    while len(stage.reports) < rollouts:
        waiting = [block for block in order if not stage.desk.drained(block)]
        stage.answer(waiting[0])
        if len(stage.reports) > len(hashes):
            hashes.append(stage.desk.parts(len(hashes)))
            stage.desk.may_begin = len(stage.reports)
            stage.settle()
    return hashes


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_every_rollout_is_reported_once_with_its_hashes(order: list[int]) -> None:
    """Rule 30, I5: four rollouts of every replica's three steps, whatever the lengths of their
    episodes; episodes by step and replica, and hashes of what stands in the storage."""
    stage, plain = Stage(InTurn()), Stage(InTurn())
    found = play(stage, 4, order)
    assert found == play(plain, 4, [0, 1, 2])
    assert stage.reports == plain.reports
    assert [rollout for rollout, _ in stage.reports] == [0, 1, 2, 3]
    assert found[3] == [replica_digest(stage.storages[1], replica) for replica in range(4)]
    for world in stage.worlds:
        assert sum(len(shown) - 1 for shown in world.shown) == 4 * STEPS
    ended = [[(e.step, e.replica) for e in episodes] for _, episodes in stage.reports]
    assert ended[0] == [(0, 1), (1, 0), (1, 1), (2, 1)]
    assert ended[1] == [(0, 1), (0, 3), (1, 0), (1, 1), (2, 1)]


def test_an_executor_with_an_actor_of_its_own_answers_all_that_have_asked_at_once() -> None:
    """One batch for each step of all blocks, until the rollout is reported."""
    stage = Stage(InTurn(), inline=True)
    stage.desk.may_begin = 0
    stage.settle()
    assert stage.answered == [[0, 1, 2]] * (STEPS + 1)
    assert [rollout for rollout, _ in stage.reports] == [0]
    assert stage.executor.waits_for_version


def test_a_block_whose_step_is_not_over_holds_up_nobody() -> None:
    """The others step, ask and are answered meanwhile; it asks when its step is over."""
    held = Held()
    stage = Stage(held)
    stage.desk.may_begin = 0
    stage.settle()
    assert sorted(held.begun) == [0, 1, 2], "first episodes begin at once too"
    for block in range(3):
        held.run(block)
    stage.settle()
    stage.answer(0, 1)
    assert sorted(held.begun) == [0, 1]
    held.run(1)
    stage.settle()
    stage.answer(1)
    assert stage.questions() == [(0, 0), (0, 1), (0, 0)]
    assert stage.desk.drained(0), "it is stepping and has asked for nothing"
    held.run(0)
    stage.settle()
    assert stage.questions() == [(0, 1), (0, 1), (0, 0)]


def test_delays_stand_at_their_places() -> None:
    """Before every question, every step and the report: where a fast machine may be slowed down."""
    stage = Stage(InTurn(), inline=True)
    stage.desk.may_begin = 0
    stage.settle()
    counts = {name: stage.pauses.count(name) for name in set(stage.pauses)}
    assert counts == {"ask": 3 * (STEPS + 1), "step": 3 * STEPS, "report": 1}


def test_threads_step_as_turns_do() -> None:
    """A thread for each block: the same hashes, episodes and reports for two rollouts."""
    bell = Doorbell()
    stage, plain = Stage(Threads(3, bell), inline=True), Stage(InTurn(), inline=True)
    for rollout in range(2):
        for one in (stage, plain):
            one.desk.may_begin = rollout
            one.settle()
            while len(one.reports) <= rollout:
                bell.wait()
                one.settle()
        assert stage.desk.parts(rollout) == plain.desk.parts(rollout)
    assert stage.reports == plain.reports


def test_threads_that_take_turns_step_as_turns_do() -> None:
    """Nobody but the blocks' threads advances the executor behind its first step."""
    bell = Doorbell()
    threads = Threads(3, bell)
    stage, plain = Stage(threads, inline=True), Stage(InTurn(), inline=True)

    def advance() -> None:
        before = len(stage.reports)
        stage.settle()
        if len(stage.reports) > before:
            bell.ring()

    turns = Turns(advance)
    threads.take_turns(turns.take)
    for rollout in range(2):
        for one in (stage, plain):
            one.desk.may_begin = rollout
        turns.take()
        bell.wait()
        plain.settle()
        assert stage.desk.parts(rollout) == plain.desk.parts(rollout)
    assert stage.reports == plain.reports


def test_whatever_is_raised_in_a_turn_ends_them_all() -> None:
    """In whichever thread that is: whoever waits at the bell is told, and nobody goes on."""
    bell = Doorbell()
    threads, taken = Threads(2, bell), SimpleQueue[str]()

    def advance() -> None:
        name = threading.current_thread().name
        taken.put(name)
        if name == "block 1":
            raise RuntimeError("the answer is lost")

    turns = Turns(advance)
    threads.take_turns(turns.take)
    for place in range(2):
        threads.start(place, lambda: None)
        assert taken.get(timeout=10) == f"block {place}"
    bell.wait()
    with pytest.raises(RuntimeError, match="the answer is lost"):
        turns.take()
    assert taken.empty()


def test_what_a_simulator_raises_in_a_thread_is_raised_by_the_executor() -> None:
    """Rule 35: not lost with the thread, and not only when that very block is looked at."""
    bell = Doorbell()
    worlds = [Scripted(acts, 0) for acts in SCRIPTS[:3]] + [Broken([Act(50)])]
    stage = Stage(Threads(3, bell), inline=True, worlds=worlds)
    stage.desk.may_begin = 0

    def drive() -> None:
        while True:
            stage.settle()
            bell.wait()

    with pytest.raises(WorldFailed) as caught:
        drive()
    assert caught.value.replica == 3
    assert str(caught.value.__cause__) == "the engine is gone"


class Misshapen(Scripted):
    """Shows less behind a step than it declares: what would fit into its place all the same."""

    def step(self, action: Array) -> Step:
        step = super().step(action)
        step.observation["pair"] = step.observation["pair"][:, :1]
        return step


class Generous(Scripted):
    """Rewards an agent that is not there."""

    def step(self, action: Array) -> Step:
        step = super().step(action)
        return step._replace(reward=np.repeat(step.reward, 2))


@pytest.mark.parametrize(
    ("world", "sentence"),
    [
        (Misshapen, "pair has the shape (1, 1); declared is (1, 2)"),
        (Generous, "reward has the shape (2,); declared is (1,)"),
    ],
)
def test_what_has_another_shape_than_declared_is_refused(
    world: type[Scripted], sentence: str
) -> None:
    """It is not spread over the place of what should be there."""
    worlds = [Scripted(acts, 0) for acts in SCRIPTS[:3]] + [world([Act(50)])]
    stage = Stage(InTurn(), inline=True, worlds=worlds)
    stage.desk.may_begin = 0
    with pytest.raises(WorldFailed) as caught:
        stage.settle()
    assert caught.value.replica == 3
    assert str(caught.value.__cause__) == sentence


def test_what_is_started_runs_in_its_own_thread() -> None:
    """Two places wait for each other, which no single thread could bear; a ring follows each."""
    bell, both = Doorbell(), threading.Barrier(2)
    threads, names = Threads(2, bell), list[str]()

    def step() -> None:
        both.wait()
        names.append(threading.current_thread().name)

    for place in range(2):
        threads.start(place, step)
    while not (threads.is_over(0) and threads.is_over(1)):
        bell.wait()
    assert sorted(names) == ["block 0", "block 1"]


def test_an_executor_closes_every_simulator() -> None:
    """Each world of each block, once."""
    closed: list[int] = []
    stage = Stage(InTurn())
    for replica, world in enumerate(stage.worlds):
        world.close = lambda r=replica: closed.append(r)  # type: ignore[method-assign, misc]
    stage.executor.close()
    assert closed == [0, 1, 2, 3]


def test_answers_of_a_lost_actor_can_be_given_by_another() -> None:
    """What is unanswered stands at the desk: who looks there finds all of it, and nothing else."""
    stage = Stage(InTurn())
    stage.desk.may_begin = 0
    stage.settle()
    stage.answer(1)
    successor = Desk(CREW, STEPS, vars_of(stage.desk))
    assert successor.pending(range(3)) == [0, 1, 2]
    assert [successor.question(block) for block in range(3)] == [(0, 0), (0, 1), (0, 0)]
    successor.answer(2)
    stage.settle()
    assert stage.questions()[2] == (0, 1)


def vars_of(desk: Desk) -> dict[str, Array]:
    """The memory behind a desk, as another process maps it."""
    names = ("asked", "answered", "filled", "hashes")
    return {"open": np.zeros(1, np.int64), **{name: getattr(desk, name) for name in names}}


class Drifting(Scripted):
    """Shows other numbers from its second frame on."""

    def _show(self) -> Observation:
        self.count += len(self.shown[-1]) == 1
        return super()._show()


def long_episodes() -> list[Scripted]:
    """Four worlds whose episodes are longer than the test."""
    return [Scripted([Act(50)], 1000 * replica) for replica in range(4)]


def test_an_episode_that_cannot_be_rebuilt_is_cut_short_once() -> None:
    """Rebuilt in the middle of a rollout, replica 2 shows something else: it is reported with the
    step that its block had asked for, truncated there in front of what it showed last, and goes on
    with an ordinary episode. Its neighbour in the block goes on as if nothing had happened."""
    stage = Stage(InTurn(), worlds=long_episodes())
    stage.desk.may_begin = 1
    stage.settle()
    stage.answer(1)
    stage.answer(1)
    worlds = long_episodes()
    worlds[2] = Drifting([Act(50)], 2000)
    stage.executor = stage.another(WorldsBlock, worlds)
    stage.executor.resume(Past({}))
    assert stage.lost == [(0, 2, [Strayed(2, 0, 1)])]
    stage.answer(1)
    first, second = stage.storages
    assert first.truncated[1:3].tolist() == [[False] * 3, [False, False, True]]
    assert not first.terminated.any()
    assert first.reward[1:3, 2, 0].tolist() == [3.0, 0.0]
    last_seen = first.arrays["frames.number"][2, first.sizes.history + 2]
    assert first.arrays["finals.number"][2, 2 % first.sizes.finals] == last_seen
    for _ in range(STEPS + 1):
        stage.answer(1)
    assert stage.questions()[1] == (1, STEPS)
    assert not second.truncated[1:3].any(), "it was cut short once"
    assert second.episode[1:3, 0].tolist() == [0, 1]
    assert second.reward[1:3, 2, 0].tolist() == [6.0, 3.0]
    assert stage.episodes == {}, "an episode that was cut short has no facts"
    assert len(stage.lost) == 1


class Losing(WorldsBlock):
    """Loses its first row in its second step, as one does whose simulators dial in."""

    def step(self, storage: Storage, step: int) -> None:
        if self.turn == 1:
            self._stray({0: 1})
        super().step(storage, step)


def test_an_episode_that_is_lost_in_a_step_is_reported_with_that_step() -> None:
    """Before the next question, with the number of the step that was cut short."""
    stage = Stage(InTurn(), worlds=long_episodes(), kind=Losing)
    stage.desk.may_begin = 0
    stage.settle()
    stage.answer(1)
    assert stage.lost == []
    stage.answer(1)
    assert stage.lost == [(0, 1, [Strayed(1, 0, 1)])]
    assert stage.storages[0].truncated[1].tolist() == [False, True, False]
