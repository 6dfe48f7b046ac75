"""What a run is made of: two frozen sections that never mix.

`Experiment` is whatever changes the result; it is hashed into the run's identity. `Machine` is
whatever must never change the result, and may differ between two halves of one run. There is one
record for each algorithm and each model, told apart by `name`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, get_args

from hts.config.extended import ABSENT, Count, Extended, is_absent
from hts.models.bounds import Bounds
from hts_envs.options import Range, option
from hts_envs.registry import parse

Positive: TypeAlias = Annotated[float, Range(above=0)]
NotNegative: TypeAlias = Annotated[float, Range(0)]
Share: TypeAlias = Annotated[float, Range(0, 1)]
Workers: TypeAlias = Annotated[int, Range(1)] | Literal["auto"]
Actors: TypeAlias = Annotated[int, Range(0, 16)] | Literal["auto"]
Activation: TypeAlias = Literal["tanh", "relu", "elu"]

_IMAGE_SHARD, _VECTOR_SHARD = 64, 4096
"""Rows of a shard whose activations stay in a processor's caches."""

_LEAST_SHARD = 4
"""Rows or sequences of a shard at the least: fewer are padded for more than they save."""


@dataclass(frozen=True, kw_only=True)
class A2C:
    """Advantage actor-critic: one optimiser step for each rollout."""

    name: Literal["a2c"] = option("a2c", "advantage actor-critic")
    learning_rate: Positive = option(7e-4, "step size at the start")
    learning_rate_schedule: Literal["constant", "linear"] = option(
        "linear", "linear: falls to zero over experiment.steps"
    )
    optimiser: Literal["rmsprop", "adam"] = option("rmsprop", "update rule")
    optimiser_epsilon: Positive = option(1e-5, "added to the root of the squared gradient")
    gamma: Share = option(0.99, "discount for each step")
    gae_lambda: Share = option(1.0, "1 is the plain n-step return")
    value_coefficient: NotNegative = option(0.5, "weight of the value loss")
    entropy_coefficient: NotNegative = option(0.01, "weight of the entropy bonus")
    max_gradient_norm: Positive = option(0.5, "gradients are scaled down to this norm")


@dataclass(frozen=True, kw_only=True)
class PPO:
    """Proximal policy optimisation: epochs of minibatches over each rollout."""

    name: Literal["ppo"] = option("ppo", "proximal policy optimisation")
    learning_rate: Positive = option(3e-4, "step size at the start")
    learning_rate_schedule: Literal["constant", "linear"] = option(
        "linear", "linear: falls to zero over experiment.steps"
    )
    optimiser: Literal["rmsprop", "adam"] = option("adam", "update rule")
    optimiser_epsilon: Positive = option(1e-5, "added to the root of the squared gradient")
    gamma: Share = option(0.99, "discount for each step")
    gae_lambda: Share = option(0.95, "how far advantages look past one step")
    clip: Positive = option(0.2, "how far a probability ratio may leave 1")
    value_clip: Positive | None = option(None, "how far a value may move in one update; none: free")
    epochs: Count = option(4, "passes over each rollout")
    minibatches: Count = option(4, "parts of a rollout, one optimiser step each")
    normalise_advantages: bool = option(True, "zero mean and unit deviation in each minibatch")
    value_coefficient: NotNegative = option(0.5, "weight of the value loss")
    entropy_coefficient: NotNegative = option(0.0, "weight of the entropy bonus")
    max_gradient_norm: Positive = option(0.5, "gradients are scaled down to this norm")


@dataclass(frozen=True, kw_only=True)
class PQL:
    """Parallel Q-Learning: critics and a policy that learn from a replay, while steps are taken.

    A window is a rollout: `rollout` steps of every replica, `beta_av` times as many updates of the
    critics, and one of the policy for every `beta_pv` of those.
    """

    name: Literal["pql"] = option("pql", "Parallel Q-Learning, off-policy")
    learning_rate: Positive = option(5e-4, "step size of the critics")
    policy_learning_rate: Positive = option(5e-4, "step size of the policy")
    optimiser: Literal["rmsprop", "adam"] = option("adam", "update rule")
    optimiser_epsilon: Positive = option(1e-8, "added to the root of the squared gradient")
    gamma: Share = option(0.99, "discount for each step")
    n_step: Count = option(3, "rewards that a target adds up, as far as the episode goes")
    tau: Share = option(0.05, "how far the target critics move towards the critics in each update")
    batch: Count = option(8192, "transitions of an update")
    replay: Count = option(1_000_000, "transitions that are kept")
    warm_up: Annotated[int, Range(0)] = option(
        32, "steps of each replica with random actions, before anything is learnt"
    )
    beta_av: Count = option(8, "updates of the critics for each step of all replicas (1:8)")
    beta_pv: Count = option(2, "updates of the critics for each of the policy (1:2)")
    pacing: Literal["count", "clock"] = option(
        "count", "clock: as many updates as there is time for, and a digest that means nothing"
    )
    policy: Literal["deterministic", "sac"] = option(
        "deterministic", "what is learnt: one action, or a distribution whose entropy is held up"
    )
    critic: Literal["twin", "categorical"] = option(
        "twin", "what each of the two critics says: a value, or a distribution over values"
    )
    atoms: Annotated[int, Range(2)] = option(51, "values of a categorical critic")
    value_low: float = option(-10.0, "the lowest of them")
    value_high: float = option(10.0, "the highest of them")
    noise_low: NotNegative = option(
        0.05, "deviation of the noise on a deterministic policy's actions: of replica 0"
    )
    noise_high: NotNegative = option(0.8, "of the last replica; those between lie evenly between")
    smoothing: NotNegative = option(0.0, "deviation of the noise on the targets' actions (TD3)")
    smoothing_clip: NotNegative = option(0.5, "and how large it is at the most")
    target_entropy: float | None = option(
        None, "of a sac policy, in nats; none: minus one for each number of an action"
    )
    reward_scale: Positive = option(1.0, "learn from rewards times this")
    max_gradient_norm: Positive = option(0.5, "gradients are scaled down to this norm")
    critic_hidden: tuple[Count, ...] = option((512, 256, 128), "widths of the critics' layers")
    critic_activation: Activation = option("elu", "between them")
    critic_sees: tuple[str, ...] | None = option(
        None, "fields of the observation that critics see, vectors all; none: all vectors"
    )
    policy_sees: tuple[str, ...] | None = option(
        None, "fields that the policy sees; none: all of them"
    )


@dataclass(frozen=True, kw_only=True)
class Mlp:
    """Fully connected layers, for observations that are vectors."""

    name: Literal["mlp"] = option("mlp", "fully connected layers")
    hidden: tuple[Count, ...] = option((64, 64), "width of each hidden layer")
    activation: Activation = option("tanh", "between the layers")
    shared: bool = option(False, "policy and value use the same layers")


@dataclass(frozen=True, kw_only=True)
class Conv:
    """Three convolutions (32 of 8x8/4, 64 of 4x4/2, 64 of 3x3/1) and a layer, for images."""

    name: Literal["conv"] = option("conv", "the convolutional net of the HTS-RL paper")
    hidden: Count = option(512, "width of the layer behind the convolutions")
    first: Literal["dense", "sparse"] = option(
        "dense", "sparse: the first convolution skips zeros, for almost empty planes as football's"
    )
    precision: Literal["float32", "bfloat16"] = option(
        "float32", "of the layers' products; bfloat16 is faster where the processor has it"
    )


@dataclass(frozen=True, kw_only=True)
class Impala:
    """The residual net of the IMPALA paper, for images."""

    name: Literal["impala"] = option("impala", "the residual net of the IMPALA paper")
    channels: tuple[Count, ...] = option((16, 32, 32), "channels of each residual stage")
    hidden: Count = option(256, "width of the layer behind the stages")


Algorithm: TypeAlias = A2C | PPO | PQL
Model: TypeAlias = Mlp | Conv | Impala


def variants(union: Any) -> dict[str, type[Any]]:
    """The records of a tagged union by their `name`."""
    return {record.__dataclass_fields__["name"].default: record for record in get_args(union)}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Whatever changes the result."""

    algo: Algorithm = field(default_factory=PPO, metadata={"help": "algorithm"})
    env: str = option("gfootball:3v1", "environment: family:name?option=value")
    model: Model = field(
        default_factory=Mlp,
        metadata={"help": "network; one that sees images where none is named and there is one"},
    )
    seed: Annotated[int, Range(0, 2**63 - 1)] = option(0, "every random number follows from it")
    replicas: Count = option(16, "copies of the environment")
    rollout: Count = option(128, "steps of each replica between two parameter versions")
    steps: Count = option(1_000_000, "environment steps of the whole run, over all replicas")
    schedule: Literal["hts", "sync"] = option(
        "hts", "hts: collect and learn at once, one version apart; sync: in turn"
    )
    correction: Literal["delayed", "ratio", "truncated_is", "none"] = option(
        "delayed", "how an update treats data that is one version old"
    )
    shards: Workers = option(
        "auto",
        "parts of a minibatch whose gradients are added in a fixed order; auto: of about 64 images",
    )
    recurrent: Literal["none", "lstm", "gru"] = option(
        "none", "a cell behind the model's layers that remembers, in front of both heads"
    )
    recurrent_units: Count = option(256, "width of the recurrent cell")
    sequence: Count | None = option(
        None, "steps that gradients of a recurrent cell go back through; none: a whole rollout"
    )
    policies: Literal["shared", "separate"] = option(
        "shared", "one network for all agents of a replica, or one for each"
    )
    squash: bool = option(
        False, "continuous actions through tanh into their bounds instead of clipped"
    )
    frame_stack: Count = option(1, "latest frames seen at once")
    clip_rewards: Positive | None = option(None, "learn from rewards clipped to this size")
    normalise_observations: bool = option(False, "by running mean and deviation")
    normalise_rewards: bool = option(False, "by the running deviation of the discounted return")
    start_from: str | None = field(
        default=None,
        metadata={"help": "hash of the weights that it starts from (--start-from)", **ABSENT},
    )
    extended: Extended = field(
        default_factory=Extended,
        metadata={"help": "finished runs that it extends (--resume with --steps)", **ABSENT},
    )

    @property
    def rows(self) -> int:
        """Observations in one rollout, for one agent."""
        return self.replicas * self.rollout

    @property
    def state_size(self) -> int:
        """Numbers that the recurrent cell remembers of one agent of one replica."""
        return {"none": 0, "lstm": 2, "gru": 1}[self.recurrent] * self.recurrent_units

    @property
    def sequence_length(self) -> int:
        """Steps that are learnt from together: one, unless the network remembers."""
        if self.recurrent == "none":
            return 1
        return self.rollout if self.sequence is None else self.sequence

    @property
    def minibatches(self) -> int:
        """Optimiser steps of one pass over a rollout."""
        return self.algo.minibatches if isinstance(self.algo, PPO) else 1

    @property
    def shard_count(self) -> int:
        """Parts of a minibatch; `auto` is the fewest that leave the caches' rows in each."""
        if self.shards != "auto":
            return self.shards
        if isinstance(self.algo, PQL):
            batch = self.algo.batch
            return next(
                n for n in range(1, batch + 1) if not batch % n and batch <= n * _VECTOR_SHARD
            )
        largest = _VECTOR_SHARD if isinstance(self.model, Mlp) else _IMAGE_SHARD
        sequences = self.rows // self.minibatches // self.sequence_length
        whole = [n for n in range(1, sequences // _LEAST_SHARD + 1) if sequences % n == 0]
        small = (n for n in whole if sequences * self.sequence_length <= n * largest)
        return next(small, max(whole, default=1))

    @property
    def bounds(self) -> Bounds:
        """How continuous actions come within their bounds."""
        if isinstance(self.algo, PQL):
            return "scaled"
        return "squashed" if self.squash else "clipped"

    @property
    def windows(self) -> int:
        """Rollouts that the replay of an off-policy algorithm holds; none for others."""
        return self.algo.replay // self.rows if isinstance(self.algo, PQL) else 0

    @property
    def unlearnt(self) -> int:
        """Rollouts of random actions, before an off-policy algorithm learns anything."""
        return -(-self.algo.warm_up // self.rollout) if isinstance(self.algo, PQL) else 0

    @property
    def updates(self) -> int:
        """Rollouts that are learnt from; the last one may pass `steps`."""
        return -(-self.steps // self.rows)

    @property
    def is_paced_by_clock(self) -> bool:
        """How often is learnt follows from time, and not from this experiment."""
        return isinstance(self.algo, PQL) and self.algo.pacing == "clock"

    def identity(self) -> str:
        """A hash that two runs share exactly when they must give the same digest."""
        spelled = dataclasses.replace(
            self, env=parse(self.env).canonical(), shards=self.shard_count
        )
        values = dataclasses.asdict(spelled)
        for each in dataclasses.fields(self):
            if is_absent(self, each):
                del values[each.name]
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Where the networks of each role compute, where that is not `machine.device`."""

    actor: str | None = option(None, "of actors, or of executors that answer themselves")
    v_learner: str | None = option(None, "of the critics' learner; the learner of a2c and ppo")
    p_learner: str | None = option(None, "of the policy's learner")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Whatever must never change the result."""

    executors: Workers = option("auto", "processes that step environments")
    actors: Actors = option("auto", "processes that answer observations; 0: executors do")
    learners: Workers = option("auto", "threads of the learner that share an update's shards")
    blocks: Workers = option("auto", "parts of each executor's replicas that advance by themselves")
    stepping: Literal["auto", "turns", "threads"] = option(
        "auto", "turns: one block after the other; threads: at once, for steps that wait"
    )
    revise: NotNegative = option(
        30.0, "seconds until auto looks at what the run costs, to change what it chose; 0: never"
    )
    replacements: Annotated[int, Range(0)] = option(
        20, "processes that may die in an hour and be replaced"
    )
    patience: NotNegative = option(
        60.0, "seconds in which nothing moves before it is said who is waited for; 0: never"
    )
    step_limit: NotNegative = option(
        0.0, "seconds that a block's step may take before its executor is replaced; 0: any"
    )
    checkpoint_every: NotNegative = option(60.0, "seconds between checkpoints; 0: one at the end")
    checkpoints: Annotated[int, Range(1)] = option(3, "the newest ones are kept")
    evaluate_every: Annotated[int, Range(0)] | Literal["auto"] = option(
        "auto", "updates between evaluated policies; auto: about 20 of them in a long run; 0: none"
    )
    evaluate_episodes: Annotated[int, Range(0)] = option(
        10, "episodes of each evaluated policy; 0: none now, policies are kept for hts-eval"
    )
    keep_policies: Count = option(10, "the newest ones are kept, and those not evaluated yet")
    serial: bool = option(False, "every role in this process, in a fixed order: for debugging")
    jitter: NotNegative = option(0.0, "random delays up to this many milliseconds everywhere")
    barrier: bool = option(False, "swap storages only when every replica has filled one")
    log: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] | None = option(
        ("tensorboard",), "where curves are written besides metrics.jsonl; none: nowhere"
    )
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    devices: Devices = field(default_factory=Devices, metadata={"help": "by role"})
    listen: str | None = option(
        None, "where simulators dial in, such as tcp://127.0.0.1:5555; none: nobody does"
    )
    remote: Annotated[int, Range(1)] | Literal["all"] = option(
        "all", "replicas whose simulators dial in, where some do: the last ones"
    )
    seat: Count = option(1, "replicas that one of them steps together")
    keys: str | None = option(
        None, "folder of the keys that let simulators in from elsewhere (hts-keys makes them)"
    )

    def dialled_in(self, replicas: int) -> range:
        """Of so many replicas, those whose simulators dial in."""
        if self.listen is None:
            return range(replicas, replicas)
        return range(0 if self.remote == "all" else max(0, replicas - self.remote), replicas)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The resolved configuration of a run."""

    experiment: Experiment = field(default_factory=Experiment)
    machine: Machine = field(default_factory=Machine)
