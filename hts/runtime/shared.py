"""What the processes of a run share: two storages and the versions that are alive."""

from __future__ import annotations

from dataclasses import dataclass

from hts.machine import SharedArray, storage_arrays
from hts.memory.arena import Arena
from hts.memory.storage import Storage
from hts.memory.versions import Published, version_arrays
from hts.runtime.assemble import Plan


@dataclass(frozen=True)
class Shared:
    """Views of the shared memory in this process."""

    arena: Arena
    storages: tuple[Storage, Storage]
    published: Published


def create(found: Plan) -> Shared:
    """Memory for a run, in the process that starts it."""
    storage, versions = _tables(found)
    return view(Arena.create([storage, storage, versions]), found)


def view(arena: Arena, found: Plan) -> Shared:
    """The arrays in it, the same in every process."""
    storage, versions = _tables(found)
    first, second = (Storage(found.sizes, found.spaces, arena.arrays(storage)) for _ in range(2))
    fields = tuple(found.scale().moments)
    return Shared(arena, (first, second), Published(arena.arrays(versions), fields))


def _tables(found: Plan) -> tuple[tuple[SharedArray, ...], tuple[SharedArray, ...]]:
    """The arrays of one storage, and of the versions."""
    return (
        storage_arrays(found.sizes, found.spaces),
        version_arrays(found.policy().size, found.scale()),
    )
