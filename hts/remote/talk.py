"""A simulator's side of the conversation, without any socket: what to say, and whose turn it is.

A *connection* offers seats; a run gives it some. A *seat* is one replica, or several that are
stepped together. At each of its turns a seat either begins episodes (`action` is None) or takes an
action, and says where it stands then:

    given a seat --> begin --> turn: action --> tell --> turn: action --> ... --> an end --> begin

The run may have lost its own place meanwhile, or somebody else's: then a seat's next turn is to
begin an episode, though its last one has not ended. What is said twice is said alike, so whatever
gets lost between both sides is asked for again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hts.remote import wire
from hts.remote.shape import Shape
from hts.remote.wire import Format, Frames, Malformed, Stand
from hts_envs.contract import Array, Spaces


class Refused(Exception):
    """The run does not take this simulator, and says why."""


@dataclass(frozen=True)
class Offer:
    """What a simulator offers: its spaces, and how many seats it can hold.

    `replayable`: an episode can be begun at any time, with the seed that is given, and goes the
    same way with the same actions. Without it, episodes that are lost are cut short.
    """

    spaces: Spaces
    seats: int = 1
    rows: int | None = None  # replicas of each seat, which are stepped together; None: one
    replayable: bool = True
    name: str = "python"


class _Word(NamedTuple):
    """What a run asks a seat for: an action to be taken (None: begin every row), and what then."""

    turn: int
    begins: list[int]
    action: Array | None
    seeds: Array

    def is_like(self, other: _Word | None) -> bool:
        """It asks for the same: the same turn, reached in the same way."""
        if other is None or self.turn != other.turn:
            return False
        if self.action is None or other.action is None:
            return self.action is other.action and bool((self.seeds == other.seeds).all())
        return True


class Seat:
    """One place in a run: whoever holds it steps its replicas."""

    def __init__(self, talk: Talk, number: int, replicas: range, build_seed: int) -> None:
        rows, single = len(replicas), talk.offer.rows is None
        self.number = number
        self.replicas = replicas
        self.build_seed = build_seed  # what a simulator draws while it is built follows from this
        self.action: Any = None
        self.rows = np.arange(rows)  # those that begin an episode now
        self.seeds = np.zeros(rows, np.uint64)  # and the seeds that they begin it with
        self.turn = -1  # of what was said last
        self.said: Frames = []
        self.format = Format(talk.offer.spaces, rows)
        self.gone = False  # it is somebody else's now
        self._talk = talk
        self._shape = Shape(talk.offer.spaces, rows, single=single)
        self._word: _Word | None = None  # what it is working on
        self._before: _Word | None = None  # and has worked on before that
        self._later: _Word | None = None  # what was asked for while somebody was at work on that
        self._at_work = False
        self._ended: Stand | None = None  # it waits for the observations that episodes begin with
        self._total = np.zeros(rows, np.float64)
        self._length = np.zeros(rows, np.int64)

    @property
    def single(self) -> bool:
        """It has one replica, and the connection has not asked for several."""
        return self._shape.single

    @property
    def replica(self) -> int:
        """The first replica of the seat: the only one, unless it steps several together."""
        return self.replicas.start

    @property
    def seed(self) -> int:
        """The seed of the episode that begins now, where the seat has one replica."""
        return int(self.seeds[0])

    def __str__(self) -> str:
        last = self.replicas.stop - 1
        return (
            f"replica {last}" if len(self.replicas) == 1 else f"replicas {self.replica} to {last}"
        )

    @property
    def at_work(self) -> bool:
        """Somebody has its turn, and has not said yet what came of it."""
        return self._at_work

    @property
    def waits(self) -> bool:
        """It has said where it stands, and was not answered yet."""
        return self._word is None

    def begin(self, observation: Any) -> None:
        """The rows in `rows` have begun an episode with their seeds, and show this."""
        self._check_turn()
        if self.action is not None:
            raise RuntimeError("this seat's turn is to take an action: tell what came of it")
        first = self._shape.observation(observation, len(self.rows))
        if not self._is_wanted():
            return
        self._total[self.rows] = 0.0
        self._length[self.rows] = 0
        stand, self._ended = self._ended, None
        if stand is None:
            count = len(self.replicas)
            reward = np.zeros((count, self.format.agents), np.float32)
            stand = Stand(first, reward, np.zeros(count, np.uint8), {}, {})
        else:
            for name, array in stand.observation.items():
                array[self.rows] = first[name]
        self._say(stand)

    def tell(
        self,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        facts: Mapping[Any, Any] | None = None,
    ) -> None:
        """What came of the action. Where an episode ended, `begin` follows.

        `facts` are numbers that are known about an episode that ended ("score"), by row where the
        seat has several; its return and length are counted here.
        """
        self._check_turn()
        if self.action is None:
            raise RuntimeError("this seat's turn is to begin an episode: reset it, and begin")
        if terminated is False and truncated is False and self._goes_on(observation, reward):
            return
        shown = self._shape.observation(observation, len(self.replicas))
        rewards = self._shape.reward(reward)
        ends = self._shape.ends(terminated, truncated)
        if not self._is_wanted():
            return
        begins = self._asked.begins
        self._total += rewards[:, 0] if self.format.agents == 1 else rewards.mean(1)
        self._length += 1
        raw = rewards.astype(np.float32)
        if not begins and not np.count_nonzero(ends):
            self._say(Stand(shown, raw, ends, {}, {}))
            return
        shown = {name: array.copy() for name, array in shown.items()}  # until others begin
        raw[begins] = 0.0  # the run begins their episodes again, however these went
        ends[begins] = 0
        ended, cut = np.flatnonzero(ends), np.flatnonzero(ends == wire.TRUNCATED)
        final = {name: array[cut] for name, array in shown.items()} if len(cut) else {}
        told = {int(row): self._facts(int(row), facts) for row in ended}
        stand = Stand(shown, raw, ends, final, told)
        rows = np.union1d(ended, np.array(begins, np.int64))
        self._ended, self.action = stand, None
        self.rows, self.seeds = rows, self._asked.seeds[rows]
        self._talk.turns.append(self)

    def _goes_on(self, observation: Any, reward: Any) -> bool:
        """The same, and fast, where nothing ends or begins; False where that is not sure."""
        frames = (
            None if self._word and self._word.begins else self._shape.plain(observation, reward)
        )
        if frames is not None and self._is_wanted():
            self._total[0] += reward
            self._length[0] += 1
            head = wire.pack("stand", self.number, self._asked.turn, {})
            self._send([head, *frames])
        return frames is not None

    def fail(self, why: str) -> None:
        """Its simulator cannot go on: the run hears why, and somebody else may take the seat."""
        if self.gone:  # what has its number by now is another one
            return
        self._talk.outbox.append([wire.pack("fail", self.number, why[-wire.TEXT_LIMIT :])])
        self._talk.drop(self.number)

    def hand_out(self) -> Seat:
        """Somebody works on its turn now: nothing changes below their hands."""
        self._at_work = True
        return self

    def ask(self, turn: int, begins: list[int], action: Array | None, seeds: Array) -> None:
        """The run's word; one that was heard before, or is late, changes nothing."""
        word = _Word(turn, begins, action, seeds)
        if word.is_like(self._later or self._word or self._before):
            return
        if action is not None and not self._is_next(turn):
            return
        if self._at_work:
            self._later = word
        else:
            self._take(word)

    def _is_next(self, turn: int) -> bool:
        """Actions are for whoever has said the turn before, and has not to begin anew first."""
        latest = self._later or self._word
        begins = latest is not None and latest.action is None
        return turn == self.turn + 1 and bool(self.said) and not begins

    def _take(self, word: _Word) -> None:
        self._word, self._ended = word, None
        if word.action is None:
            self.action = None
            self.rows, self.seeds = np.arange(len(self.replicas)), word.seeds
        else:
            self.action = self._shape.action(word.action)
        if self not in self._talk.turns:
            self._talk.turns.append(self)

    def _check_turn(self) -> None:
        if not self._at_work and not self.gone:
            raise RuntimeError("this seat has had its turn: wait until it is handed out again")

    def _is_wanted(self) -> bool:
        """Whoever was at work is back; False where the run wants something else by now."""
        self._at_work = False
        later, self._later = self._later, None
        if later is not None and not self.gone:
            self._take(later)
        return later is None and not self.gone

    def _say(self, stand: Stand) -> None:
        self._send(self.format.stand(self.number, self._asked.turn, stand))

    def _send(self, frames: Frames) -> None:
        """What it was asked for is answered with these."""
        self.turn, self._before, self._word = self._asked.turn, self._word, None
        self.said = frames
        self._talk.outbox.append(frames)

    @property
    def _asked(self) -> _Word:
        """What it is working on."""
        assert self._word is not None, "only what was asked for is said"
        return self._word

    def _facts(self, row: int, facts: Mapping[Any, Any] | None) -> dict[str, float]:
        given = (facts or {}) if self._shape.single else (facts or {}).get(row, {})
        own = {"return": float(self._total[row]), "length": float(self._length[row])}
        return own | self._shape.facts(given)


class Talk:
    """Everything that one connection says and hears."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.seats: dict[int, Seat] = {}
        self.turns: deque[Seat] = deque()  # seats that nobody works on, and that may move
        self.outbox: deque[Frames] = deque()
        self.over = False
        self._session = os.urandom(16)
        self._run = ""
        self._hears: dict[str, Callable[..., None]] = {
            "welcome": self._welcome,
            "take": self._take,
            "act": self._act,
            "again": self._again,
            "drop": self.drop,
            "who": self.hello,
            "here": lambda: None,
            "refused": self._refused,
            "over": self._over,
        }

    def hello(self) -> None:
        """Say who this is, what it offers, and where its seats stand."""
        offer = self.offer
        facts = {
            "protocol": wire.PROTOCOL,
            "name": offer.name,
            "session": self._session,
            "run": self._run,
            "seats": offer.seats,
            "rows": offer.rows or 1,
            "replayable": offer.replayable,
            "spaces": wire.spaces_to_plain(offer.spaces),
            "held": [[seat.number, seat.turn] for seat in self.seats.values()],
        }
        self.outbox.append([wire.pack("hello", facts)])

    def offers(self, seats: int) -> None:
        """It can hold so many seats from now on."""
        self.offer = replace(self.offer, seats=seats)
        self.hello()

    def ping(self) -> None:
        """Nothing was heard for a while: say what is waited for."""
        waiting = [[seat.number, seat.turn] for seat in self.seats.values() if seat.waits]
        self.outbox.append([wire.pack("ping", waiting)])

    def bye(self) -> None:
        """Leave: whoever else is there may take the seats."""
        self.outbox.append([wire.pack("bye")])

    def next_turn(self) -> Seat | None:
        """A seat that may move, for somebody to work on."""
        return self.turns.popleft().hand_out() if self.turns else None

    def hear(self, frames: Frames) -> None:
        """One message of the run's."""
        kind, values = wire.unpack(frames[0])
        hear = self._hears.get(kind)
        if hear is None:
            raise Malformed(f"a run does not say {kind!r}")
        if kind == "act":
            values.append(frames[1:])
        hear(*values)

    def drop(self, number: int) -> None:
        """A seat is held no more."""
        seat = self.seats.pop(number, None)
        if seat is not None:
            seat.gone = True
            if seat in self.turns:
                self.turns.remove(seat)

    def _welcome(self, facts: dict[str, Any]) -> None:
        run = str(facts.get("run"))
        if run != self._run:
            for number in list(self.seats):
                self.drop(number)
        self._run = run

    def _take(self, number: int, first: int, rows: int, build_seed: bytes) -> None:
        if rows != (self.offer.rows or 1):
            raise Malformed("a seat has as many rows as were offered")
        if number < 0 or first < 0 or len(build_seed) != 8:
            raise Malformed("a seat has a number, a first replica, and a seed of 8 bytes")
        if number not in self.seats:
            replicas = range(first, first + rows)
            self.seats[number] = Seat(self, number, replicas, int.from_bytes(build_seed, "little"))

    def _act(self, number: int, turn: int, begins: list[Any], frames: Frames) -> None:
        seat = self.seats.get(number)
        if turn < 0:
            raise Malformed("turns are counted from 0")
        if seat is not None:
            seat.ask(turn, begins, *seat.format.read_act(begins, frames))

    def _again(self, number: int, turn: int) -> None:
        seat = self.seats.get(number)
        if seat is not None and seat.said and turn == seat.turn:
            self.outbox.append(seat.said)

    def _refused(self, why: str) -> None:
        raise Refused(wire.told(why))

    def _over(self) -> None:
        self.over = True
