"""The finished runs that an experiment extends, and fields that its identity may leave out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from hts_envs.options import Range, option

Count: TypeAlias = Annotated[int, Range(1)]

ABSENT: Mapping[str, bool] = {"absent_by_default": True}
"""Metadata of a field that records and identities leave out at its default."""


@dataclass(frozen=True, kw_only=True)
class Extended:
    """The finished runs that an experiment extends, the oldest first: each field has one entry
    for each of them. `hts.config.lineage` derives the stages of the experiment from it."""

    from_steps: tuple[Count, ...] = option((), "steps of the whole run, as it was finished")
    from_digests: tuple[str, ...] = option((), "its digest")
    horizons: tuple[Literal["constant", "stretch", "restart"], ...] = option(
        (), "what the learning rate does from there on"
    )

    def first(self, count: int) -> Extended:
        """Return the oldest so many of them."""
        return Extended(
            from_steps=self.from_steps[:count],
            from_digests=self.from_digests[:count],
            horizons=self.horizons[:count],
        )


def is_absent(record: Any, field: dataclasses.Field[Any]) -> bool:
    """Return whether records and identities leave this field out: at its default it says nothing,
    and runs that are older than the field keep their identity."""
    if not field.metadata.get("absent_by_default"):
        return False
    factory = field.default_factory
    default = field.default if factory is dataclasses.MISSING else factory()
    return bool(getattr(record, field.name) == default)
