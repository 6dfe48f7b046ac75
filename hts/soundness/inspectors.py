"""What can be seen of a world by looking at one run of it: each inspector watches one promise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hts.soundness.findings import Finding, Level, plural
from hts.soundness.subject import observation_name
from hts.soundness.trace import Event, Position, digest
from hts_envs.contract import Array, Box, Discrete, Space, Spaces, Traits


@dataclass
class _Violation:
    text: str
    first: Position
    count: int = 1


class Inspector(ABC):
    """Watches a run; says at its end what was wrong, or in one sentence that nothing was."""

    check: str
    praise: str
    level = Level.ERROR

    def __init__(self) -> None:
        self._violations: dict[str, _Violation] = {}

    @abstractmethod
    def see(self, event: Event) -> None: ...

    def findings(self) -> list[Finding]:
        found = []
        for violation in self._violations.values():
            times = f", and {plural(violation.count - 1, 'time')} more"
            more = times if violation.count > 1 else ""
            text = f"{violation.text} (first in {violation.first}{more})"
            found.append(Finding(self.level, self.check, text))
        return found or [Finding(Level.OK, self.check, self.praise)]

    def blame(self, key: str, text: str, position: Position) -> None:
        """Note a violation; only the first of its kind is described."""
        if key in self._violations:
            self._violations[key].count += 1
        else:
            self._violations[key] = _Violation(text, position)


class SpacesInspector(Inspector):
    """Names, dtypes, shapes and ranges are what the spaces say; rewards and flags are typed."""

    check = "spaces"
    praise = "every observation, reward and flag has its declared type, shape and range"

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self._spaces = spaces

    def see(self, event: Event) -> None:
        observation = event.moment.observation
        where = event.positions[0]
        for name in self._spaces.observation.keys() - observation.keys():
            self.blame(f"missing {name}", f"{event.call} returns no {_shown(name)}", where)
        for name, array in observation.items():
            space = self._spaces.observation.get(name)
            if space is None:
                text = f"{event.call} returns {_shown(name)}, which its spaces do not declare"
                self.blame(f"unknown {name}", text, where)
                continue
            lead = (len(event.positions), self._spaces.agents)
            for key, text in _array_faults(_shown(name), array, space, lead):
                self.blame(key, text, where)
        if event.moment.reward is not None:
            self._see_reward(event.moment.reward, len(event.positions), where)
        if not event.moment.real_bools:
            self.blame("bools", "terminated and truncated are not plain true or false", where)
        if not event.action_intact:
            self.blame("action", "step changes the array of actions that it is given", where)

    def _see_reward(self, reward: Array, rows: int, where: Position) -> None:
        space = Box((), "float32")
        for key, text in _array_faults("reward", reward, space, (rows, self._spaces.agents)):
            self.blame(key, text, where)


def _shown(name: str) -> str:
    return name if name == "observation" else repr(observation_name(name))


def _array_faults(
    name: str, array: Array, space: Space, lead: tuple[int, int]
) -> Iterator[tuple[str, str]]:
    if array.dtype != np.dtype(space.dtype):
        text = f"{name} has dtype {array.dtype}, declared is {space.dtype}"
        yield f"dtype {name}", text
    if array.shape != lead + tuple(space.shape):
        got, declared = array.shape[1:], lead[1:] + tuple(space.shape)
        if array.shape[:1] != lead[:1]:  # only a batched world can get its rows wrong
            got, declared = array.shape, lead + tuple(space.shape)
        yield f"shape {name}", f"{name} has shape {got}, declared is {declared}"
        return
    yield from _range_faults(name, array, space)


def _range_faults(name: str, array: Array, space: Space) -> Iterator[tuple[str, str]]:
    low, high = (np.broadcast_to(side, array.shape) for side in _bounds(space))
    for outside, word, bounds in ((array < low, "least", low), (array > high, "most", high)):
        outside = outside & np.isfinite(array)
        if outside.any():
            index = tuple(int(i) for i in np.argwhere(outside)[0])
            place = f" at {list(index[2:])}" if len(index) > 2 else ""
            limit = f"declared is at {word} {bounds[index]:g}"
            yield f"{word} {name}", f"{name} holds {array[index]!s}{place}, {limit}"


def _bounds(space: Space) -> tuple[Array, Array]:
    if isinstance(space, Box):
        return np.asarray(space.low), np.asarray(space.high)
    counts = space.n if isinstance(space, Discrete) else np.asarray(space.nvec)
    return np.asarray(0), np.asarray(counts) - 1


class FiniteInspector(Inspector):
    """No number is NaN or infinite."""

    check = "finite"
    praise = "no observation or reward is NaN or infinite"

    def see(self, event: Event) -> None:
        for position, fields in event.rows():
            for name, array in fields.items():
                if array.dtype.kind not in "fc" or np.isfinite(array).all():
                    continue
                what = "NaN" if np.isnan(array).any() else "infinite"
                self.blame(f"{name} {what}", f"{name} is {what}", position)


class AliasInspector(Inspector):
    """What was returned belongs to the caller: later calls do not change it."""

    check = "aliasing"
    praise = "what was returned is not changed by the next steps and resets"

    def __init__(self) -> None:
        super().__init__()
        # Three calls back, so that a world with two buffers in turn is seen too.
        self._held: deque[tuple[Event, dict[str, str]]] = deque(maxlen=3)

    def see(self, event: Event) -> None:
        for earlier, digests in self._held:
            for name, array in earlier.moment.fields().items():
                if digest(array) != digests[name]:
                    text = (
                        f"{name} of a {earlier.call} is changed by a later {event.call}: "
                        "the world hands out its internal buffer instead of a copy"
                    )
                    self.blame(name, text, earlier.positions[0])
        fields = event.moment.fields()
        self._held.append((event, {name: digest(array) for name, array in fields.items()}))


class FactsInspector(Inspector):
    """The facts of an ended episode hold its return and its length, and they are right."""

    check = "facts"
    praise = "facts hold the return and the length of every ended episode"

    def __init__(self) -> None:
        super().__init__()
        self._totals: dict[tuple[int, int], float] = {}
        self._seen = False

    def see(self, event: Event) -> None:
        for (position, fields), over in zip(event.rows(), event.ended(), strict=True):
            episode = position[:2]
            if "reward" not in fields:
                self._totals[episode] = 0.0
                continue
            self._totals[episode] += float(np.mean(fields["reward"], dtype=np.float64))
            if over:
                self._seen = True
                self._see_end(position, fields)

    def _see_end(self, position: Position, fields: dict[str, Array]) -> None:
        for name in ("return", "length"):
            if f"facts.{name}" not in fields:
                self.blame(name, f"the facts of an ended episode lack {name!r}", position)
                return
        # Where rewards are shaped, what they add up to is told apart from the raw return.
        paid = fields.get("facts.shaped_return", fields["facts.return"])
        length, total = float(fields["facts.length"]), float(paid)
        if length != position.step:
            text = f"facts say that the episode had {length:g} steps, it had {position.step}"
            self.blame("wrong length", text, position)
        rewards = self._totals[position[:2]]
        if abs(total - rewards) > 1e-3 * max(1.0, abs(rewards)):
            text = f"facts say a return of {total:g}, the rewards add up to {rewards:g}"
            self.blame("wrong return", text, position)

    def findings(self) -> list[Finding]:
        return super().findings() if self._seen else []


class EndsInspector(Inspector):
    """How episodes end: terminated and truncated are told apart, clocks are what they say."""

    check = "ends"
    praise = ""

    def __init__(self, traits: Traits) -> None:
        super().__init__()
        self._limit = traits.time_limit
        self.terminated = self.truncated = self.both = self.longest = 0

    def see(self, event: Event) -> None:
        terminated, truncated = event.moment.terminated, event.moment.truncated
        if terminated is None or truncated is None:
            return
        for row, position in enumerate(event.positions):
            self.longest = max(self.longest, position.step)
            self.both += bool(terminated[row] and truncated[row])
            self.terminated += bool(terminated[row] and not truncated[row])
            self.truncated += bool(truncated[row] and not terminated[row])
            late = self._limit is not None and position.step >= self._limit
            if late and not (terminated[row] or truncated[row]):
                text = f"an episode goes on after its time limit of {self._limit} steps"
                self.blame("limit", text, position)

    def findings(self) -> list[Finding]:
        found = super().findings() if self._violations else []
        ends = self.terminated + self.truncated + self.both
        if self.both:
            text = (
                f"{plural(self.both, 'episode')} ended terminated and truncated at once: "
                "terminated counts, nothing is bootstrapped"
            )
            found.append(Finding(Level.NOTE, self.check, text))
        if not ends:
            text = f"no episode ended within {plural(self.longest, 'step')}"
            found.append(Finding(Level.NOTE, self.check, text))
        elif not found:
            text = f"{plural(ends, 'episode')} ended: {self.terminated} terminated, "
            found.append(Finding(Level.OK, self.check, text + f"{self.truncated} truncated"))
        return found


class ResetInspector(Inspector):
    """A reset begins something new."""

    check = "reset"
    praise = "a reset returns something else than the last observation"
    level = Level.WARNING

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[int, dict[str, str]] = {}
        self._ever: set[str] = set()
        self._resets = self._same = 0

    def see(self, event: Event) -> None:
        for position, fields in event.rows():
            seen = {n: digest(a) for n, a in fields.items() if n.startswith("observation")}
            self._ever.add("".join(seen.values()))
            if event.call == "reset" and position.replica in self._last:
                self._resets += 1
                self._same += seen == self._last[position.replica]
            self._last[position.replica] = seen

    def findings(self) -> list[Finding]:
        if len(self._ever) == 1:
            return [Finding(Level.WARNING, self.check, "all observations are the same")]
        if self._resets and self._same == self._resets:
            text = "every reset returns the last observation again: it may not reset anything"
            return [Finding(self.level, self.check, text)]
        return [Finding(Level.OK, self.check, self.praise)] if self._resets else []


def inspectors(spaces: Spaces, traits: Traits) -> list[Inspector]:
    """All of them, in the order in which people are told."""
    return [
        SpacesInspector(spaces),
        FiniteInspector(),
        AliasInspector(),
        EndsInspector(traits),
        FactsInspector(),
        ResetInspector(),
    ]
