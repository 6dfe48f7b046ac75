"""What the processes of a run have said, put in order.

A process that redoes what its predecessor had done says it again: what was heard before is the
same, and is not counted twice.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from hts.machine import storage_arrays
from hts.roles.blocks import Episode
from hts.runtime.shared import Blueprint
from hts_envs.contract import Array


class Heard:
    """Updates, episodes, and the actions that running episodes may have to be rebuilt from."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.past: list[dict[int, Array]] = [{} for _ in blueprint.crew.blocks]
        self._blueprint = blueprint
        (self._action,) = [
            declared
            for declared in storage_arrays(blueprint.sizes, blueprint.spaces)
            if declared.name == "action"
        ]
        self._updates: dict[int, dict[str, Any]] = {}
        self._episodes: dict[int, dict[tuple[int, int], Episode]] = defaultdict(dict)
        self._parts: dict[int, set[int]] = defaultdict(set)
        self._next = 0

    def take(self, said: dict[str, Any]) -> None:
        """One message of anybody."""
        if "link" in said and said["link"]["update"] > self._next:
            self._updates.setdefault(said["link"]["update"] - 1, said)
        elif "ended" in said and said["ended"] >= self._next:
            for facts in said["episodes"]:
                episode = Episode(**facts)
                self._episodes[said["ended"]].setdefault(episode.order(), episode)
        elif "part" in said and said["part"] >= self._next:
            self._parts[said["part"]].add(said["block"])
            self._keep(said)

    def _keep(self, said: dict[str, Any]) -> None:
        """The actions of a block's part, and of as many before it as its episodes need."""
        rollout, kept = said["part"], self.past[said["block"]]
        replicas = len(self._blueprint.crew.blocks[said["block"]])
        actions = np.frombuffer(said["raw"], self._action.dtype)
        kept[rollout] = actions.reshape(replicas, *self._action.shape[1:])
        needed = -(-said["age"] // self._blueprint.sizes.steps)
        # One more: a successor may have to begin in the rollout before this one.
        for old in [number for number in kept if number < rollout - needed]:
            del kept[old]

    def has(self, rollout: int) -> bool:
        """Everything about this rollout and its update has been said."""
        blocks = len(self._blueprint.crew.blocks)
        return rollout in self._updates and len(self._parts[rollout]) == blocks

    def pop(self, rollout: int) -> tuple[dict[str, Any], list[Episode]]:
        """The update, and the episodes that ended in its rollout; asked for in order, once."""
        assert rollout == self._next, "rollouts are told in order"
        self._next += 1
        del self._parts[rollout]
        return self._updates.pop(rollout), list(self._episodes.pop(rollout, {}).values())
