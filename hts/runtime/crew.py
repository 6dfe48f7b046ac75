"""Who does what in a run: executors, their blocks, actors; and the simulators in the blocks.

Nothing here needs torch: an executor whose observations are answered elsewhere never imports it.
"""

from __future__ import annotations

import itertools
import os
import sys

from hts.config import Experiment, Machine
from hts.determinism import numerics
from hts.determinism.keys import Purpose, key
from hts.memory.desk import Crew
from hts.models.bounds import taken_in
from hts.roles.blocks import BUILDING, Block, ChangedSetting
from hts.roles.local import BatchedBlock, WorldsBlock
from hts_envs.contract import SEED_LIMIT, BatchedWorld, Place, Spaces, World
from hts_envs.registry import Spec, make, parse


def crew_for(experiment: Experiment, machine: Machine) -> Crew:
    """Executors with equal shares of the replicas, each cut into blocks; the last one may be for
    replicas whose simulators dial in, a block for each of their seats."""
    actors = 0 if machine.actors == "auto" else machine.actors
    theirs = machine.dialled_in(experiment.replicas)
    executors = _executors(experiment, machine, theirs.start)
    blocks: list[range] = []
    owners: list[int] = []
    for executor, share in enumerate(shares(range(theirs.start), executors)):
        parts = min(len(share), blocks_for(machine, len(share), executors, actors))
        blocks += shares(share, parts)
        owners += [executor] * parts
    if theirs:  # one executor more, for everybody who dials in
        seats = [range(at, at + machine.seat) for at in theirs[:: machine.seat]]
        blocks += seats
        owners += [executors] * len(seats)
        executors += 1
    return Crew(tuple(blocks), tuple(owners), executors, actors)


def _executors(experiment: Experiment, machine: Machine, replicas: int) -> int:
    """How many step so many replicas here."""
    if not replicas:
        return 0
    if machine.executors != "auto":
        return machine.executors
    if parse(experiment.env).batched:
        return 1
    return min(len(os.sched_getaffinity(0)), replicas)


def blocks_for(machine: Machine, share: int, executors: int, actors: int) -> int:
    """One block keeps an executor busy that answers itself; while actors answer one, step another.

    Threads are for steps that wait: every replica by itself.
    """
    if machine.blocks != "auto":
        return machine.blocks
    if machine.stepping == "threads":
        return share
    return min(share, max(2, -(-actors // executors))) if actors else 1


def shares(replicas: range, parts: int) -> list[range]:
    """Consecutive parts of these replicas, as even as possible."""
    if not parts:
        return []
    cuts = [replicas.start + len(replicas) * part // parts for part in range(parts + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(cuts)]


def make_blocks(
    experiment: Experiment, spec: Spec, spaces: Spaces, parts: list[range]
) -> list[Block]:
    """Build the simulators of these parts of the replicas, and only those."""
    taken, seed = taken_in(spaces, experiment.bounds), experiment.seed
    is_prepared = "torch" in sys.modules  # its settings have their values
    blocks: list[Block] = []
    for part in parts:
        worlds = make_worlds(spec, part, seed)
        if isinstance(worlds, BatchedWorld):
            blocks.append(BatchedBlock(worlds, part, taken, seed))
        else:
            blocks.append(WorldsBlock(worlds, part, taken, seed))
    changes = numerics.settle()  # a simulator may be made of torch, and have set it up for itself
    if is_prepared and blocks:
        built = range(parts[0].start, parts[-1].stop)
        blocks[0].changed += [ChangedSetting(built, BUILDING, change) for change in changes]
    return blocks


def make_worlds(spec: Spec, part: range, seed: int) -> BatchedWorld | list[World]:
    """The simulators of consecutive replicas: each knows its place, and what it is built with."""
    if spec.batched:
        world = make(spec, Place(part.start, len(part), seed))
        assert isinstance(world, BatchedWorld), f"{spec.canonical()} said it was batched"
        return world
    worlds = []
    for replica in part:
        built_with = key(seed, Purpose.BUILD, replica) % SEED_LIMIT
        single = make(spec, Place(replica, 1, built_with))
        assert not isinstance(single, BatchedWorld), f"{spec.canonical()} said it was single"
        worlds.append(single)
    return worlds
