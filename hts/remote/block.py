"""A block whose simulators dial in: one seat, and whoever holds it.

Its turns are numbered through the run: `turn` is where its replicas stand in the storage. Whoever
holds the seat stands at that turn, or is on the way to it or to the next one:

    nobody --joined--> begins an episode --replay--> stands here --act--> on the way --stand--> ...

A holder that is new begins the running episode again and is given its recorded actions; what it
shows on the way must be what stands in the storage. One that has lost its connection only, and
says where it stands, is believed and asked to say it once more. One that cannot begin an episode
again begins the next one: the running one is cut short.

No socket is here: `send` is the way to whoever holds the seat.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hts.determinism.keys import episode_seeds
from hts.memory.storage import Storage
from hts.models.bounds import Taken
from hts.remote import wire
from hts.remote.wire import Format, Frames, Malformed, Stand
from hts.roles.blocks import Block, Left
from hts.roles.rebuilding import Rebuilt, Record
from hts_envs.contract import Array, BatchedStep, Observation, Spaces


@dataclass
class Holder:
    """Who holds a seat: the way to it, and where it stands as far as it was heard."""

    send: Callable[[Frames], None]
    replayable: bool
    at: int | None = None  # the turn that it stands at; None: it has not begun
    asked: int | None = None  # the turn that it is on the way to
    claims: int | None = None  # where it says that it stands, and was not heard saying yet
    since: float = 0.0  # it was asked


class RemoteBlock(Block):
    """Consecutive replicas that are stepped by whoever holds their seat."""

    def __init__(
        self,
        seat: int,
        replicas: range,
        taken: Taken,
        seed: int,
        spaces: Spaces,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(replicas, taken, seed)
        self._clock = clock
        self.seat = seat
        self.holder: Holder | None = None
        self.over = True  # nothing of what was begun is still to come
        self.since = 0.0  # it was begun
        self.format = Format(spaces, len(replicas))
        self._trail: deque[bytes] = deque()  # the latest actions, back to the longest episode's
        self._action = b""  # what is to be taken at this turn, and was not yet
        self._at: tuple[Storage, int, int] | None = (
            None  # where this turn stands, and from which place on it is known
        )
        self._record: Record | None = None  # of a replay that is going on
        self._shown: Observation = {}
        self._told: Mapping[int, Mapping[str, float]] = {}
        self._sent: Frames = []
        self._next_seeds = b""

    # --- what the executor asks for ---------------------------------------------------------------

    def begin(self, storage: Storage) -> None:
        self.over, self.since, self._at = False, self._clock(), (storage, 0, 0)
        self._go_on()

    def take_over(self, storage: Storage, older: Storage) -> None:
        super().take_over(storage, older)
        self._at = storage, 0, 0

    def step(self, storage: Storage, step: int) -> None:
        self.over, self.since = False, self._clock()
        action = self._taken(storage.action[self.slice, step])
        self._action = action.tobytes()
        self._go_on()

    def rebuild(self, storage: Storage, step: int, left: Left) -> Rebuilt:
        self._stand(storage, step)
        self._at, trail = (storage, step, left.known), left.trail
        actions = self._taken(trail[:, trail.shape[1] - int(self.age.max()) :])
        self._trail.extend(each.tobytes() for each in np.ascontiguousarray(actions.swapaxes(0, 1)))
        return Rebuilt()  # whoever holds the seat does that

    def close(self) -> None:
        self.left()

    # --- what its holder says, and what is said of it ---------------------------------------------

    def joined(self, holder: Holder) -> None:
        """Somebody holds the seat from now on."""
        if holder.claims not in (max(0, self.turn), self.turn + 1):
            holder.claims = None
        self.holder, self._record = holder, None
        self._go_on()

    def left(self) -> None:
        """Nobody does."""
        self.holder, self._record = None, None

    def waits(self, turn: int) -> None:
        """The holder waits for an answer to this turn: one of the two may have been lost."""
        holder = self._heard_from(turn)
        if holder is not None and holder.asked == turn:
            holder.send([wire.pack("again", self.seat, turn)])
        elif holder is not None and holder.asked is not None:
            holder.send(self._sent)

    def stood(self, turn: int, stand: Stand) -> None:
        """The holder says where it stands. What was not asked for changes nothing."""
        holder = self._heard_from(turn)
        if holder is None or holder.asked != turn:
            return
        if turn == self.turn + 1 and not self._may_take(stand):
            raise Malformed("an episode that has just begun has no end")
        holder.at, holder.asked, holder.claims = turn, None, None
        if turn == self.turn + 1:
            self._take(stand)
        else:
            self._compare(turn, stand)
        self._go_on()

    def _may_take(self, stand: Stand) -> bool:
        return self.turn >= 0 or not stand.ends.any()

    def _heard_from(self, turn: int) -> Holder | None:
        """The holder. It may have been at work when it said where it stands, and be behind that
        by now."""
        holder = self.holder
        if holder is not None and holder.claims == self.turn == turn - 1:
            holder.claims, holder.asked = turn, None
            self._go_on()
        return holder

    def _take(self, stand: Stand) -> None:
        """The next turn is there."""
        assert self._at is not None, "a seat is asked for a turn that has a place"
        storage, step, _ = self._at
        self._shown, self._told = stand.observation, stand.facts
        if self.turn < 0:
            self._began(storage)
            self._next_seeds = b""
        else:
            self._trail.append(self._action)
            self._action = b""
            self._at = storage, step + 1, 0
            if stand.goes_on and not self._lost:
                self._went_on(storage, step, stand.observation, stand.reward)
            else:
                self._took(storage, step, self._result(stand))
                self._next_seeds = b""
                while len(self._trail) > self.age.max():
                    self._trail.popleft()
        self.over = True

    def _result(self, stand: Stand) -> BatchedStep:
        """What the step returned: behind an end the observation is the episode's last one."""
        seen = {name: array.copy() for name, array in stand.observation.items()}
        for name, array in stand.final.items():
            seen[name][stand.cut] = array
        return BatchedStep(seen, stand.reward.copy(), stand.terminated, stand.truncated, {})

    def _compare(self, turn: int, stand: Stand) -> None:
        """A replay is at this turn: it shows what was seen then, or has strayed."""
        assert self._at is not None, "what is compared has a place"
        if self._record is None:
            storage, step, known = self._at
            self._record = Record(storage, step, known, self.replicas.start, self.age)
        left = self.turn - turn
        rows = np.flatnonzero(self.age >= left)
        shown = {name: array[rows] for name, array in stand.observation.items()}
        self._record.hold(rows, left, shown)
        for row in np.flatnonzero((stand.ends != 0) & (self.age > left)):
            self._record.stray(int(row), left)
        if not left:
            self._lose(self._record.strayed)

    def _lose(self, steps: Mapping[int, int | None]) -> None:
        """These rows have not come back; those that had not before are told."""
        lost = self._lost
        self._stray({row: step for row, step in steps.items() if row not in lost})
        self._lost = sorted({*lost, *steps})
        self._record = None

    def _go_on(self) -> None:
        """Ask the holder for its next turn, if there is one."""
        holder = self.holder
        if holder is None or holder.asked is not None or self._at is None:
            return
        if holder.claims is not None:
            if holder.claims == self.turn or self._action or self.turn < 0:
                holder.asked = holder.claims
                holder.since = self._clock()
                self._sent = [wire.pack("again", self.seat, holder.claims)]
                holder.send(self._sent)
        elif self.turn < 0:
            self._ask(0, list(range(self.format.rows)), b"", self._seeds(1))
        elif holder.at is None and not holder.replayable:
            self._lose(dict.fromkeys(range(self.format.rows)))
            holder.at = self.turn
            self._go_on()
        elif holder.at is None:
            self._ask_to_begin()
        elif holder.at < self.turn:
            self._ask_to_replay(holder.at)
        elif self._action:
            everybody = len(self._lost) == self.format.rows
            action = b"" if everybody else self._action
            self._ask(self.turn + 1, list(self._lost), action, self._seeds(1))

    def _ask_to_begin(self) -> None:
        turn = self.turn - int(self.age.max())
        self._ask(turn, list(range(self.format.rows)), b"", self._seeds(0))

    def _ask_to_replay(self, at: int) -> None:
        begins = np.flatnonzero(self.age == self.turn - at - 1).tolist()
        action = self._trail[len(self._trail) - (self.turn - at)]
        self._ask(at + 1, begins, action, self._seeds(0))

    def _seeds(self, ahead: int) -> bytes:
        """Of the running episodes, or of the next ones, which stay the same until one ends."""
        if not ahead or not self._next_seeds:
            seeds = episode_seeds(self.seed, self._numbers, self.episode + ahead).tobytes()
            if not ahead:
                return seeds
            self._next_seeds = seeds
        return self._next_seeds

    def _ask(self, turn: int, begins: list[int], action: bytes, seeds: bytes) -> None:
        assert self.holder is not None, "somebody is asked"
        self.holder.asked, self.holder.since = turn, self._clock()
        self._sent = self.format.act(self.seat, turn, begins, action, seeds)
        self.holder.send(self._sent)

    def _reset(self, rows: Array) -> Observation:
        """Whoever ended an episode has begun the next one by itself, with the seed it was given."""
        return {name: array[rows] for name, array in self._shown.items()}

    def _facts(self, result: BatchedStep, row: int) -> dict[str, float]:
        return dict(self._told[row])
