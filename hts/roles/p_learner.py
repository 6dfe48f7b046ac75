"""The P-learner: teaches the policy to do what the critics find worth most.

In its turn v it reads the policy that it made last, the critics as they were after turn v - 1 of
the V-learner (v where learners take turns), and what was seen in the windows before that. What it
makes is published as the next version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from hts.config import PQL, Experiment
from hts.learn.critics import worth
from hts.learn.kept import state_of, take_state
from hts.learn.optimisers import clip_norm, make_optimiser
from hts.memory.versions import Version
from hts.models.critics import Critics
from hts.models.policy import Policy
from hts.replay.ring import Ring, Span
from hts.roles.pace import Pace, by_count
from hts.roles.replayed import Replayed
from hts.roles.v_learner import atoms_of, taught
from hts_envs.contract import Array, Observation

_LOSSES = ("policy_loss", "entropy", "temperature", "policy_gradient_norm")
TOLD = (*_LOSSES, "policy_updates")


class PLearner:
    """The policy and its optimiser, and a copy of the critics."""

    def __init__(
        self,
        experiment: Experiment,
        make_policy: Callable[[], Policy],
        ring: Ring,
        pace: Pace = by_count,
    ) -> None:
        algo = experiment.algo
        assert isinstance(algo, PQL), "what is learnt from a replay"
        self._algo: PQL = algo
        self._updates = algo.beta_av * experiment.rollout // algo.beta_pv
        self._policy = make_policy()
        self._actions = taught(self._policy)
        device = str(self._policy.device)
        self._critics = Critics(experiment, self._policy.world, device).freeze()
        self._optimiser = make_optimiser(
            algo.optimiser, self._policy.size, algo.optimiser_epsilon, device
        )
        self._replayed = Replayed(experiment, ring, self._actions.noise, pace)
        self._atoms = atoms_of(algo)
        self._names = tuple(dict.fromkeys([*self._policy.network.spaces, *self._critics.seen]))
        entropy = algo.target_entropy
        self._target_entropy = -float(self._actions.dimensions) if entropy is None else entropy
        self._told = np.zeros(len(TOLD))

    def learn(self, turn: int, span: Span, newest: Version, critics: Array) -> None:
        """All updates of a turn; without anything to learn from, the policy stays what it was."""
        self._policy.load(newest.parameters)
        if not len(span):
            return
        self._critics.load(torch.from_numpy(np.array(critics)))
        found, updates = torch.zeros(len(_LOSSES)), 0
        batches = self._replayed.seen(turn, self._updates, span, newest.scale, self._names)
        for seen, chances in batches:
            found = self._update(seen, torch.from_numpy(chances))
            updates += 1
        self._told = np.append(found.double().cpu().numpy(), updates)

    def _update(self, seen: Observation, chances: Tensor) -> Tensor:
        policy, algo = self._policy, self._algo
        policy.gradient.zero_()
        head = policy.answer({name: array[:, None] for name, array in seen.items()}).head
        action, log_prob = self._actions.drawn(head, chances.to(policy.device))
        said = self._critics.judge(self._critics.features(seen), action)
        loss = -worth(said, self._atoms).amin(0).mean()
        temperature = torch.zeros((), device=policy.device)
        log_temperature = policy.network.log_temperature
        if log_temperature is not None:
            temperature = log_temperature.detach().exp().mean()
            too_sure = (log_prob.detach() + self._target_entropy).mean()
            loss = loss + temperature * log_prob.mean() - (log_temperature * too_sure).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = clip_norm(policy.gradient, algo.max_gradient_norm)
        policy.vector.add_(self._optimiser.step(policy.gradient, algo.policy_learning_rate))
        with torch.no_grad():
            return torch.stack([loss, -log_prob.mean(), temperature, norm.mean()])

    def arrays(self) -> dict[str, Array]:
        """What it has made, and all that a successor needs; to be copied before the next turn."""
        return {
            "parameters": self._policy.vector.detach().cpu().numpy(),
            "told": self._told,
            **state_of(self._optimiser),
        }

    def take(self, kept: Mapping[str, Array]) -> None:
        """Go on from what another one kept; the arrays are copied."""
        self._told = np.array(kept["told"])
        take_state(self._optimiser, kept)
