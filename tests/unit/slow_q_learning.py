"""Q-learning as its papers write it, in NumPy's float64: slow, and independent of the product.

Parallel Q-Learning (algorithms 2 and 3, with mixed exploration left to the actor), TD3's smoothed
targets, SAC's entropy and the distributional critic of C51. Gradients are central differences of
the loss, so that no formula is differentiated by hand. Only keys and their uniforms are the
product's own: they have tests of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from hts.config import PQL, Experiment
from hts.determinism.keys import Purpose, key, keys
from hts.replay.ring import Ring, Span
from hts_envs.contract import Array
from hts_envs.randomness import uniform

SEEN, ACTIONS = 2, 2
"""Numbers of an observation and of an action."""

POLICY_HIDDEN, CRITIC_HIDDEN = 3, 5
"""Widths of the one hidden layer."""

CRITICS, POLICY = 0, 1
"""The learner that draws."""


@dataclass(frozen=True)
class Rows:
    """The transitions of one update, one row each."""

    seen: Array
    action: Array
    reward: Array
    discount: Array
    next_seen: Array
    normal: Array  # standard normal numbers: (rows, ACTIONS)


def updates(
    experiment: Experiment, ring: Ring, learner: int, turn: int, span: Span, count: int
) -> Iterator[Rows]:
    """Draw the rows of each update of a turn by their keys, and walk along each by hand."""
    algo = off_policy(experiment)
    for update in range(count):
        named = key(experiment.seed, Purpose.REPLAY, learner, turn, update)
        rows = keys(named, Purpose.REPLAY, np.arange(algo.batch))
        numbers = uniform(keys(named, Purpose.EXPLORATION, rows), 2 * ACTIONS + 1)
        first, second = numbers[:, :ACTIONS], numbers[:, ACTIONS : 2 * ACTIONS]
        normal = np.sqrt(-2.0 * np.log(1.0 - first)) * np.cos(2.0 * math.pi * second)
        walks = [_walk(algo, ring, share, span) for share in uniform(rows, 1)[:, 0]]
        columns = [np.array(column, np.float64) for column in zip(*walks, strict=True)]
        yield Rows(*columns, normal)


def _walk(
    algo: PQL, ring: Ring, share: float, span: Span
) -> tuple[Array, Array, float, float, Array]:
    """Add up to n rewards from one step on, and stop at an end or where nothing is written."""
    place = math.floor(share * (span.end - span.first) * ring.replicas)
    step, replica = span.first + place // ring.replicas, place % ring.replicas
    arrays, first = ring.arrays, step % ring.steps
    total, discount = 0.0, 1.0
    for ahead in range(step, min(step + algo.n_step, span.end)):
        last = ahead % ring.steps
        total += discount * algo.reward_scale * float(arrays["reward"][last, replica])
        discount *= algo.gamma
        if arrays["terminated"][last, replica]:
            discount = 0.0
        if arrays["terminated"][last, replica] or arrays["truncated"][last, replica]:
            break
    seen, action = arrays["seen.observation"][first, replica], arrays["action"][first, replica]
    return seen, action, total, discount, arrays["behind.observation"][last, replica]


def off_policy(experiment: Experiment) -> PQL:
    """Return the experiment's algorithm."""
    assert isinstance(experiment.algo, PQL)
    return experiment.algo


def network(vector: Array, inputs: Array, hidden: int) -> Array:
    """Compute one hidden layer of tanh; the vector holds W1, b1, W2, b2."""
    width = inputs.shape[1]
    outputs = (len(vector) - hidden * (width + 1)) // (hidden + 1)
    ends = np.cumsum([hidden * width, hidden, outputs * hidden])
    w1, b1, w2, b2 = np.split(vector, ends)
    inner = np.tanh(inputs @ w1.reshape(hidden, width).T + b1)
    return np.asarray(inner @ w2.reshape(outputs, hidden).T + b2)


def critics(vector: Array, seen: Array, action: Array) -> list[Array]:
    """Return the outputs of both critics for state and action."""
    both = np.split(vector, 2)
    return [network(one, np.concatenate([seen, action], 1), CRITIC_HIDDEN) for one in both]


def softmax(numbers: Array) -> Array:
    """Return probabilities, row by row."""
    powers = np.exp(numbers - numbers.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def atoms(algo: PQL) -> Array:
    """Return the values of a distributional critic."""
    return np.linspace(algo.value_low, algo.value_high, algo.atoms)


def values(algo: PQL, outputs: Array) -> Array:
    """Return the value of each row: a critic's only output, or the mean of its distribution."""
    return outputs[:, 0] if algo.critic == "twin" else softmax(outputs) @ atoms(algo)


def head_of(algo: PQL, parameters: Array) -> Array:
    """Leave out the temperature, which is the first parameter of a SAC policy."""
    return parameters[1:] if algo.policy == "sac" else parameters


def act(algo: PQL, parameters: Array, seen: Array, normal: Array) -> tuple[Array, Array]:
    """Return the policy's action for each row, and its log pi (0 if deterministic).

    SAC: u ~ N(mu, sigma), a = tanh(u), log pi = sum of log N(u) - log(1 - tanh(u)^2).
    """
    head = network(head_of(algo, parameters), seen, POLICY_HIDDEN)
    if algo.policy == "deterministic":
        return np.tanh(head), np.zeros(len(head))
    mu, log_sigma = head[:, :ACTIONS], -5.0 + 7.0 * (np.tanh(head[:, ACTIONS:]) + 1.0) / 2.0
    sigma = np.exp(log_sigma)
    action = np.tanh(mu + sigma * normal)
    density = np.exp(-(normal**2) / 2.0) / (sigma * math.sqrt(2.0 * math.pi))
    return action, np.log(density / (1.0 - action**2)).sum(1)


def targets(algo: PQL, parameters: Array, target: Array, rows: Rows) -> Array:
    """Return y = R + gamma^n (min_k Q'_k(s', a') - alpha log pi(a')), or the distribution of it."""
    action, log_pi = act(algo, parameters, rows.next_seen, rows.normal)
    if algo.smoothing and algo.policy == "deterministic":
        noise = np.clip(algo.smoothing * rows.normal, -algo.smoothing_clip, algo.smoothing_clip)
        action = np.clip(action + noise, -1.0, 1.0)
    alpha = math.exp(parameters[0]) if algo.policy == "sac" else 0.0
    reward = rows.reward - rows.discount * alpha * log_pi
    outputs = critics(target, rows.next_seen, action)
    worth = np.array([values(algo, each) for each in outputs])
    if algo.critic == "twin":
        return np.asarray(reward + rows.discount * worth.min(0))
    least = worth.argmin(0)
    chances = [softmax(outputs[which])[row] for row, which in enumerate(least)]
    moves = zip(chances, reward, rows.discount, strict=True)
    return np.array([_project(algo, *move) for move in moves])


def _project(algo: PQL, chances: Array, reward: float, discount: float) -> Array:
    """Move each atom to r + gamma z and share it between the two atoms next to that (C51)."""
    support, found = atoms(algo), np.zeros(algo.atoms)
    apart = support[1] - support[0]
    for chance, atom in zip(chances, support, strict=True):
        moved = min(max(reward + discount * atom, support[0]), support[-1])
        place = (moved - support[0]) / apart
        lower = min(math.floor(place), algo.atoms - 2)
        found[lower] += chance * (lower + 1 - place)
        found[lower + 1] += chance * (place - lower)
    return found


def critic_loss(algo: PQL, vector: Array, rows: Rows, y: Array) -> float:
    """Return the mean over rows of both critics' squared errors, or cross-entropies."""
    outputs = critics(vector, rows.seen, rows.action)
    if algo.critic == "twin":
        return float(sum(((each[:, 0] - y) ** 2).mean() for each in outputs))
    return float(sum(-(y * np.log(softmax(each))).sum(1).mean() for each in outputs))


def policy_loss(
    algo: PQL, vector: Array, now: Array, judges: Array, rows: Rows
) -> tuple[float, float]:
    """Return the loss, -min_k Q_k(s, a) + alpha log pi(a) in the mean, and the entropy.

    SAC's temperature has a loss of its own, -log alpha (log pi + target entropy), in which log pi
    is a number; and so is alpha (of the parameters `now`) in the policy's.
    """
    action, log_pi = act(algo, vector, rows.seen, rows.normal)
    outputs = critics(judges, rows.seen, action)
    loss = -np.min([values(algo, each) for each in outputs], 0).mean()
    if algo.policy == "sac":
        entropy = -float(ACTIONS) if algo.target_entropy is None else algo.target_entropy
        too_sure = act(algo, now, rows.seen, rows.normal)[1].mean() + entropy
        loss += math.exp(now[0]) * log_pi.mean() - vector[0] * too_sure
    return float(loss), -float(log_pi.mean())


def slope(loss: Callable[[Array], float], at: Array, reach: float = 1e-5) -> Array:
    """Return the gradient by central differences."""
    steps = np.eye(len(at)) * reach
    return np.array([(loss(at + step) - loss(at - step)) / (2.0 * reach) for step in steps])


def clipped(gradient: Array, limit: float) -> tuple[Array, float]:
    """Return the gradient scaled down to the limit, and the norm that it had."""
    norm = math.sqrt(float((gradient**2).sum()))
    return gradient * min(1.0, limit / norm), norm


class Adam:
    """Kingma and Ba's algorithm 1, from a state on."""

    def __init__(self, steps: int, mean: Array, square: Array, epsilon: float) -> None:
        self.steps, self.mean, self.square, self.epsilon = steps, mean, square, epsilon

    def step(self, gradient: Array, rate: float) -> Array:
        """Return the change of the parameters."""
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean = self.mean / (1.0 - 0.9**self.steps)
        square = self.square / (1.0 - 0.999**self.steps)
        return np.asarray(-rate * mean / (np.sqrt(square) + self.epsilon))
