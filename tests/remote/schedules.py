"""The whole conversation without a socket, in an order that follows from a seed.

The real executor, blocks and seating, and the real client side, over connections that are lists. At
each point one thing happens: a message arrives, a simulator takes its turn, time passes; or a
connection is cut, a simulator dies, the executor's process is replaced, a message comes twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hts.machine import Sizes
from hts.memory.desk import Crew, Desk
from hts.memory.storage import Storage
from hts.models.bounds import as_drawn
from hts.remote.block import RemoteBlock
from hts.remote.port import Port, Remote
from hts.remote.seating import Seating
from hts.remote.talk import Offer, Seat, Talk
from hts.remote.wire import Frames
from hts.roles.blocks import Block, Episode, Strayed
from hts.roles.executor import Executor, InTurn, Part, Partners, Past, Stepping
from hts.roles.local import WorldsBlock
from hts_envs.contract import Array, Observation
from hts_envs.reference import ReferenceWorld

STEPS, ROLLOUTS, RUN_SEED = 6, 4, 11
LONG = 60_000
"""Points after which something hangs."""


@dataclass(frozen=True)
class Shape:
    """Of a run: its replicas, how many of them a seat has, and how many agents."""

    replicas: int = 4
    rows: int = 1
    agents: int = 1

    @property
    def crew(self) -> Crew:
        starts = range(0, self.replicas, self.rows)
        blocks = tuple(range(start, start + self.rows) for start in starts)
        return Crew(blocks, (0,) * len(blocks), 1, 0)


class Stage:
    """One executor, and everything in its process and behind it."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.spaces = ReferenceWorld(shape.agents).spaces
        sizes = Sizes(shape.replicas, STEPS, shape.agents, 1)
        self.storages = Storage(sizes, self.spaces), Storage(sizes, self.spaces)
        self.desk = Desk(shape.crew, STEPS)
        self.past: dict[int, dict[int, Array]] = {b: {} for b in range(len(shape.crew.blocks))}
        self.hashes: list[list[bytes]] = []
        self.lost: list[Strayed] = []
        self.ended: set[tuple[int, int, int, float, float]] = set()

    def executor(self, blocks: Sequence[Block], stepping: Stepping) -> Executor:
        partners = Partners(lambda _: None, _Told(self), lambda _: None, self._answer, stepping)
        executor = Executor(0, blocks, self.desk, self.storages, partners)
        executor.resume(Past(self.past))
        return executor

    def settle(self, executor: Executor) -> None:
        """Everything that can be done now; a rollout that is complete is learnt from at once."""
        self.desk.may_begin = max(self.desk.may_begin, 0)
        moved = True
        while moved:
            moved = executor.advance()
            if self.desk.is_complete(len(self.hashes)) and len(self.hashes) < ROLLOUTS:
                self.hashes.append(self.desk.parts(len(self.hashes)))
                self.desk.may_begin = min(len(self.hashes), ROLLOUTS - 1)
                moved = True

    def _answer(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            rollout, step = self.desk.question(block)
            storage, replicas = self.storages[rollout % 2], self.desk.crew.blocks[block]
            if step < STEPS:
                for replica in replicas:
                    drawn = int(storage.key[replica, step]) % 3
                    storage.action[replica, step] = (drawn + np.arange(self.shape.agents)) % 3
            self.desk.answer(block)


@dataclass
class _Told:
    stage: Stage

    def ended(self, rollout: int, episodes: list[Episode]) -> None:
        for each in episodes:
            facts = each.facts["return"], each.facts["length"]
            self.stage.ended.add((rollout, each.step, each.replica, *facts))

    def part(self, at: Part) -> None:
        self.stage.past[at.block][at.rollout] = at.actions.copy()

    def filled(self, rollout: int) -> None:
        pass

    def strayed(self, rollout: int, step: int, strayed: list[Strayed]) -> None:
        self.stage.lost += strayed


def local(shape: Shape) -> Stage:
    """The run whose simulators are built in the executor."""
    stage = Stage(shape)
    blocks: list[Block] = [
        WorldsBlock([ReferenceWorld(shape.agents) for _ in part], part, as_drawn, RUN_SEED)
        for part in shape.crew.blocks
    ]
    stage.settle(stage.executor(blocks, InTurn()))
    return stage


@dataclass
class Batch:
    """The simulators of one seat."""

    worlds: list[ReferenceWorld]

    def begin(self, seat: Seat) -> Observation:
        shown = [
            self.worlds[row].reset(int(seed))
            for row, seed in zip(seat.rows, seat.seeds, strict=True)
        ]
        return {name: np.stack([each[name] for each in shown]) for name in shown[0]}

    def step(self, seat: Seat) -> tuple[Any, ...]:
        agents = self.worlds[0].spaces.agents
        actions = np.asarray(seat.action).reshape(len(self.worlds), agents)
        found = [world.step(each) for world, each in zip(self.worlds, actions, strict=True)]
        shown = {n: np.stack([f.observation[n] for f in found]) for n in found[0].observation}
        rewards = np.stack([each.reward for each in found])
        terminated = np.array([each.terminated for each in found])
        return shown, rewards, terminated, np.array([each.truncated for each in found])


@dataclass
class Client:
    """A simulator with its connection: what is on its way in both directions."""

    talk: Talk
    route: bytes
    up: list[Frames] = field(default_factory=list)
    down: list[Frames] = field(default_factory=list)
    at_work: list[Seat] = field(default_factory=list)
    simulators: dict[Seat, Batch] = field(default_factory=dict)
    silent: bool = True  # nothing was heard since time passed last

    def flush(self) -> None:
        while self.talk.outbox:
            self.up.append(self.talk.outbox.popleft())


class Schedule:
    """A run whose simulators dial in, with the troubles that are asked for."""

    def __init__(
        self,
        seed: int,
        shape: Shape,
        troubles: Sequence[str],
        *,
        make: Callable[[int], ReferenceWorld] = ReferenceWorld,
        replayable: bool = True,
        many: int = 12,
    ) -> None:
        self.stage = Stage(shape)
        self.notes: list[str] = []
        self._make, self._replayable = make, replayable
        self.now, self._second = 0.0, 1.0
        self._random = random.Random(seed)
        self._troubles = {name: getattr(self, f"_{name}") for name in troubles}
        self._left = many
        self._routes = 0
        self._gone: list[bytes] = []
        self._clients: list[Client] = []
        for _ in range(self._random.randint(1, 3)):
            self._dial()
        self._replace()

    def keep_seats(self) -> None:
        """Time passes slowly: whoever was cut off is back before its seats are given away."""
        self._second = 1e-3

    def run(self) -> Stage:
        """Until the last rollout is filled."""
        for _ in range(LONG):
            if len(self.stage.hashes) == ROLLOUTS:
                return self.stage
            self._point()
            self.stage.settle(self._executor)
        raise AssertionError(f"{len(self.stage.hashes)} of {ROLLOUTS} rollouts: somebody hangs")

    def _point(self) -> None:
        moves: list[Callable[[], None]] = []
        for client in self._clients:
            if client.up:
                moves.append(lambda c=client: self._arrives_here(c))
            if client.down:
                moves.append(lambda c=client: self._arrives_there(c))
            if client.talk.turns:
                moves.append(lambda c=client: c.at_work.append(c.talk.next_turn()))
            if client.at_work:
                moves.append(lambda c=client: self._works(c))
        if self._left and self._troubles and self._random.random() < 0.02:
            self._left -= 1
            self._troubles[self._random.choice(sorted(self._troubles))]()
        elif moves and self._random.random() < 0.99:
            self._random.choice(moves)()
        else:
            self._time_passes()

    def _arrives_here(self, client: Client) -> None:
        self._seating.hear(client.route, client.up.pop(0))

    def _arrives_there(self, client: Client) -> None:
        client.talk.hear(client.down.pop(0))
        client.flush()
        client.silent = False

    def _works(self, client: Client) -> None:
        self._serve(client, client.at_work.pop(self._random.randrange(len(client.at_work))))
        client.flush()

    def _serve(self, client: Client, seat: Seat) -> None:
        shape = self.stage.shape
        if seat not in client.simulators:
            worlds = [self._make(shape.agents) for _ in range(shape.rows)]
            client.simulators[seat] = Batch(worlds)
        if seat.action is None:
            seat.begin(client.simulators[seat].begin(seat))
        else:
            seat.tell(*client.simulators[seat].step(seat))

    def _time_passes(self) -> None:
        self.now += self._second
        for client in self._clients:
            if client.silent:
                client.talk.ping()
                client.flush()
            client.silent = True
        self._seating.look()
        while self._gone:
            self._seating.lost(self._gone.pop())

    def _note(self, sentence: str, **_: int) -> None:
        self.notes.append(sentence)

    def _send(self, route: bytes, frames: Frames) -> None:
        for client in self._clients:
            if client.route == route:
                client.down.append(frames)
                return
        self._gone.append(route)

    def _dial(self) -> None:
        """One simulator more, and others until everybody can have a seat."""
        wanted = len(self.stage.desk.crew.blocks)
        while True:
            seats = self._random.randint(1, wanted)
            offer = Offer(self.stage.spaces, seats, self.stage.shape.rows, self._replayable)
            client = Client(Talk(offer), self._route())
            client.talk.hello()
            client.flush()
            self._clients.append(client)
            if sum(each.talk.offer.seats for each in self._clients) >= wanted:
                return

    def _route(self) -> bytes:
        self._routes += 1
        return b"%d" % self._routes

    def _replace(self) -> None:
        """The executor's process was killed: another one goes on from what is in memory."""
        shape, began = self.stage.shape, bool(self.stage.desk.asked.any())
        terms = Remote(Port("tcp://127.0.0.1:1"), "this run", 0.0, 0.0)
        blocks = [
            RemoteBlock(seat, part, as_drawn, RUN_SEED, self.stage.spaces, clock=lambda: self.now)
            for seat, part in enumerate(shape.crew.blocks)
        ]
        for client in self._clients:
            client.route = self._route()
            del client.down[self._random.randint(0, len(client.down)) :]
            del client.up[: self._random.randint(0, len(client.up))]
        last = STEPS * ROLLOUTS
        self._seating = Seating(
            terms,
            self.stage.spaces,
            blocks,
            self._send,
            self._note,
            last=last,
            began=began,
            clock=lambda: self.now,
        )
        self._executor = self.stage.executor(blocks, Waiting(blocks))

    def _cut(self) -> None:
        """A connection is cut, with what was on its way; the simulator connects again."""
        client = self._random.choice(self._clients)
        self._gone.append(client.route)
        client.route = self._route()
        del client.down[self._random.randint(0, len(client.down)) :]
        del client.up[: self._random.randint(0, len(client.up))]

    def _reopen(self) -> None:
        """The port is opened anew: every connection is cut."""
        self._seating.reopened()
        for client in self._clients:
            client.route = self._route()
            del client.down[self._random.randint(0, len(client.down)) :]
            del client.up[: self._random.randint(0, len(client.up))]

    def _die(self) -> None:
        """A simulator is killed; another one dials in."""
        client = self._clients.pop(self._random.randrange(len(self._clients)))
        self._gone.append(client.route)
        self._dial()

    def _leave(self) -> None:
        """A simulator leaves; another one dials in."""
        client = self._random.choice(self._clients)
        client.talk.bye()
        client.flush()
        for frames in client.up:
            self._seating.hear(client.route, frames)
        self._clients.remove(client)
        self._dial()

    def _fail(self) -> None:
        """A simulator raises in the middle of a step."""
        for client in self._clients:
            if client.at_work:
                client.at_work.pop().fail("it raised")
                client.flush()
                if len(self._clients) < 8:
                    self._dial()
                return

    def _double(self) -> None:
        """Something arrives twice."""
        client = self._random.choice(self._clients)
        for queue in (client.up, client.down):
            if queue:
                queue.insert(self._random.randint(1, len(queue)), queue[0])


@dataclass
class Waiting(Stepping):
    """Steps that are over when their simulators have answered."""

    blocks: Sequence[RemoteBlock]

    def start(self, place: int, step: Callable[[], None]) -> None:
        step()

    def is_over(self, place: int) -> bool:
        return self.blocks[place].over
