"""What critics are taught: targets of one value or of a distribution over values, and losses.

Pure functions of tensors. `said` is what both critics say: (2, rows, outputs), outputs being 1 for
values and the number of atoms for distributions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Atoms:
    """The values that a categorical critic spreads its belief over, evenly apart."""

    low: float
    high: float
    count: int

    def values(self, like: Tensor) -> Tensor:
        return torch.linspace(self.low, self.high, self.count, device=like.device)

    @property
    def apart(self) -> float:
        return (self.high - self.low) / (self.count - 1)


def worth(said: Tensor, atoms: Atoms | None) -> Tensor:
    """The value that each critic expects: (2, rows)."""
    assert said.ndim == 3, "both critics, rows, outputs"
    if atoms is None:
        return said.squeeze(-1)
    return (torch.softmax(said, -1) * atoms.values(said)).sum(-1)


def target_values(said: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """reward + discount * the smaller of both values: (rows,)."""
    lower = worth(said, None).amin(0)
    assert reward.shape == discount.shape == lower.shape, "one number for each row"
    return reward + discount * lower


def target_chances(said: Tensor, reward: Tensor, discount: Tensor, atoms: Atoms) -> Tensor:
    """The belief of the critic that expects less, moved to reward + discount * value and spread
    over the two atoms next to that: (rows, atoms)."""
    expected = worth(said, atoms)
    lower = (expected[1] < expected[0])[:, None]
    chances = torch.where(lower, torch.softmax(said[1], -1), torch.softmax(said[0], -1))
    return project(chances, reward, discount, atoms)


def project(chances: Tensor, reward: Tensor, discount: Tensor, atoms: Atoms) -> Tensor:
    """Each atom's chance goes to the places nearest to where it has moved, by nearness.

    Sums over moved atoms, one for each place: no scattered additions, whose order a GPU would not
    keep.
    """
    assert chances.shape == (len(reward), atoms.count), "a chance for each atom of each row"
    values = atoms.values(chances)
    moved = reward[:, None] + discount[:, None] * values
    at = (moved.clamp(atoms.low, atoms.high) - atoms.low) / atoms.apart
    places = torch.arange(atoms.count, device=chances.device)
    near = (1.0 - (at[:, :, None] - places).abs()).clamp_(min=0.0)
    return torch.bmm(chances[:, None, :], near).squeeze(1)


def value_loss(said: Tensor, target: Tensor) -> Tensor:
    """Squared errors of both critics, summed over rows."""
    return (worth(said, None) - target).square().sum()


def chances_loss(said: Tensor, target: Tensor) -> Tensor:
    """Cross-entropies of both critics, summed over rows."""
    return -(target * functional.log_softmax(said, -1)).sum()


def follow(target: Tensor, newest: Tensor, tau: float) -> None:
    """Move the parameters of the target critics a part of the way, in place."""
    target.lerp_(newest, tau)
