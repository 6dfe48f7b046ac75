"""An actor over shared memory, for the process that holds it."""

from __future__ import annotations

from collections.abc import Sequence

from hts.memory.versions import Published
from hts.models.policy import Policy
from hts.roles.executor import Answering
from hts.roles.explorer import actor_for
from hts.runtime.jitter import Jitter
from hts.runtime.shared import Inference, Shared, Terms


def answering(terms: Terms, inference: Inference, shared: Shared, pause: Jitter) -> Answering:
    """Answers what blocks have asked, with the versions that are published."""
    blueprint = terms.memory.blueprint
    published = Published(shared.versions, tuple(blueprint.scaled))

    device, strategy = inference.device, inference.strategy

    def make_policy() -> Policy:
        return Policy(terms.experiment, blueprint.spaces, device, packs=strategy.packs)

    actor = actor_for(terms.experiment, make_policy, strategy.padding, blueprint.sizes.replicas)

    def answer(blocks: Sequence[int]) -> None:
        pause("answer")
        actor.answer(shared.desk, blocks, shared.storages, published.read)

    return answer
