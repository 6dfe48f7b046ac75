"""Every name that is ever written to a log, in one table: its unit, and what it means.

`hts-train --help-metrics` prints it; what a run writes and what stands here is held together by a
test. The step axis is environment steps everywhere, `update` and `time/seconds` stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One name; a test looks for it in what runs have written."""

    name: str
    unit: str
    meaning: str
    own_title: str = ""  # where the name does not read well

    @property
    def title(self) -> str:
        """Short words for a chart: `Policy loss`."""
        group, _, name = self.name.rpartition("/")
        words = [*_GROUPS.get(group, ()), *name.split("_")]
        return self.own_title or " ".join(words).capitalize()

    @property
    def axis(self) -> str:
        """Unit beside an axis; nothing for a plain number."""
        return "" if self.unit == "1" else self.unit

    @property
    def label(self) -> str:
        """Title, with its unit where that says more: `Memory (MB)`."""
        return self.title if self.axis in self.title.lower() else f"{self.title} ({self.axis})"

    @property
    def heading(self) -> str:
        """Title, with what it is a mean over where that is a number of episodes."""
        return f"{self.title}, {_LATEST}" if _LATEST in self.meaning else self.title


_GROUPS = {"episode": ("training",), "eval": ("evaluation",)}
_LATEST = "mean over the latest 100 episodes that ended"
_LAST_EPOCH = "mean over the rows of the update's last epoch"
_SHARE = "share of the time since the last line that says it"

METRICS = (
    Metric("update", "updates", "rollouts that have been learnt from"),
    Metric("steps", "steps", "all replicas together; the axis of every curve", "Environment steps"),
    Metric("train/policy_loss", "1", f"the policy's loss, {_LAST_EPOCH}"),
    Metric("train/value_loss", "return²", f"the value's squared error, {_LAST_EPOCH}"),
    Metric("train/entropy", "nats", f"entropy of the policy, {_LAST_EPOCH}"),
    Metric(
        "train/kl",
        "nats",
        f"estimate against the policy that acted, {_LAST_EPOCH}",
        "KL divergence",
    ),
    Metric("train/clip_fraction", "share", "rows whose ratio left the clip range, last epoch"),
    Metric("train/gradient_norm", "1", "mean norm of the gradients before clipping, last epoch"),
    Metric("train/explained_variance", "1", "1: values predict the returns; 0: no better than 0"),
    Metric("train/learning_rate", "1", "step size of this update"),
    Metric("train/critic_loss", "1", "both critics' loss, mean over an update's last batch (pql)"),
    Metric(
        "train/value",
        "return",
        "smaller of both critics' values, mean over that batch",
        "Mean value",
    ),
    Metric("train/critic_gradient_norm", "1", "norm of the critics' gradient before clipping"),
    Metric("train/policy_gradient_norm", "1", "norm of the policy's gradient there (pql)"),
    Metric("train/critic_updates", "updates", "of the critics in this window (pql)"),
    Metric("train/policy_updates", "updates", "of the policy in this window (pql)"),
    Metric("train/temperature", "return/nat", "what a nat of entropy is worth to a sac policy"),
    Metric("train/lag", "updates", "from the version that acted to the one that is learnt into"),
    Metric(
        "train/ratio_error_first",
        "1",
        "largest |ratio - 1| of the first minibatch: exactly 0 with padded batches, at most 0.001 "
        "with fixed places or on a GPU, else the run stops; ratio: one version off",
    ),
    Metric("episode/return", "reward", f"raw return, never clipped, shaped or scaled; {_LATEST}"),
    Metric("episode/shaped_return", "reward", f"where rewards are shaped, their sum; {_LATEST}"),
    Metric("episode/score", "score", f"what the world itself calls its score; {_LATEST}"),
    Metric("episode/length", "steps", f"steps of an episode; {_LATEST}", "Episode length"),
    Metric("episode/count", "episodes", "episodes that ended since the run began"),
    Metric("eval/return", "reward", "raw return of an evaluated policy; at the steps that made it"),
    Metric("eval/score", "score", "the world's own score there, mean of episodes"),
    Metric("eval/length", "steps", "steps of an episode there, mean of episodes"),
    Metric("time/seconds", "s", "wall time spent on the run, all its legs together"),
    Metric("time/steps_per_second", "steps/s", "over the latest second or longer", "Speed"),
    Metric("machine/executors_working", "share", f"executors step or answer, {_SHARE}"),
    Metric("machine/executors_for_learner", "share", f"they wait for a version, {_SHARE}"),
    Metric("machine/executors_for_actors", "share", f"they wait for answers, {_SHARE}"),
    Metric("machine/executors_for_simulators", "share", f"they wait for simulators, {_SHARE}"),
    Metric("machine/actors_working", "share", f"actors answer, {_SHARE}"),
    Metric("machine/actors_for_executors", "share", f"they wait for observations, {_SHARE}"),
    Metric("machine/learner_working", "share", f"the learner learns, {_SHARE}"),
    Metric("machine/learner_for_executors", "share", f"it waits for a rollout, {_SHARE}"),
    Metric("machine/learner_for_learner", "share", f"it waits for the P-learner (pql), {_SHARE}"),
    Metric("machine/p_learner_working", "share", f"the P-learner learns (pql), {_SHARE}"),
    Metric("machine/p_learner_for_learner", "share", f"it waits for the learner (pql), {_SHARE}"),
    Metric(
        "machine/cores_busy",
        "cores",
        "computing, by any program, of those of the run",
        "Busy cores",
    ),
    Metric("machine/replaced", "processes", "that failed in this leg and were replaced"),
    Metric("machine/memory", "MB", "of all processes of the run, shared memory counted once"),
)

UNREPEATED = ("time/", "machine/")
"""What says how a run went and not what it did: two equal runs differ in it."""

_BY_NAME = {metric.name: metric for metric in METRICS}


def described(name: str) -> Metric:
    """Return the entry of the table; a name that it lacks is its own title."""
    return _BY_NAME.get(name) or Metric(name, "", "", name)


def table() -> Iterator[str]:
    """The names as a table in Markdown."""
    yield "| name | unit | meaning |"
    yield "|---|---|---|"
    for metric in METRICS:
        yield f"| `{metric.name}` | {metric.unit} | {metric.meaning.replace('|', chr(92) + '|')} |"
