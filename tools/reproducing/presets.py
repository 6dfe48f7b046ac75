"""What belongs to each table and figure of the papers: environments, arms, sizes.

A run is made for each environment, arm and seed. `small` names what of that a machine with two
cores gets done in minutes; whatever it lacks of `full` is said, since it follows from both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ATARI = tuple(
    f"atari:{game}"
    for game in (
        "BankHeist",
        "BeamRider",
        "Breakout",
        "Frostbite",
        "Jamesbond",
        "Krull",
        "KungFuMaster",
        "MsPacman",
        "Qbert",
        "Seaquest",
        "SpaceInvaders",
        "StarGunner",
    )
)
FOOTBALL = tuple(
    f"gfootball:{scenario}"
    for scenario in (
        "empty_goal_close",
        "empty_goal",
        "run_to_score",
        "rsk",
        "psk",
        "rpsk",
        "3v1",
        "corner",
        "counterattack_easy",
        "counterattack_hard",
        "lazy",
    )
)
SCHEDULES = {name: f"--schedule {name}" for name in ("sync", "hts")}
BARRIER = {**SCHEDULES, "hts_barrier": "--schedule hts_barrier"}
SHAPES = ("16", "4", "1", "0.5", "0.25")  # of gamma distributions: variances 1.6 to 100 ms²
REPLICAS = ("1", "2", "4", "8", "16")
NOISES = ("0.2", "0.4", "0.6", "0.8")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of it is run: steps of each run, further flags, and of which runs; () is all."""

    steps: int
    flags: str = ""
    envs: Sequence[str] = ()
    arms: Sequence[str] = ()
    seeds: str = "0..4"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """One table or figure: its runs, and what hts-plot then is asked for."""

    about: str
    envs: Sequence[str]
    arms: Mapping[str, str]  # by what their folders are called: the flags in which they differ
    flags: str  # of all runs
    show: Sequence[str]  # each the flags of one hts-plot
    full: Scale
    small: Scale
    compares_envs: bool = False  # environments are its rows, so that no other can be named
    says: str = ""  # what else is to be known of the small one


@dataclass(frozen=True)
class Command:
    """A figure that takes no runs: the command that is it."""

    about: str
    command: Sequence[str] = field(default_factory=tuple)


FIGURE_3 = Command(
    "claims 1 and 2: time over variance and interval, latency over actors (no runs)",
    ("hts-simulate", "--claims"),
)

_BALL = ("batched:ball_balance",)
_FULL = Scale(steps=10_000_000, flags="--config pql-paper-ball-balance")
_SMALL = Scale(steps=200_000, flags="--config pql-ball-balance", seeds="0")
_SMALLER = (
    "256 replicas and smaller networks and batches than the paper's, on the one task of its that "
    "needs no simulator of contacts; other tasks may order the curves otherwise."
)


def _curves(about: str, arms: Mapping[str, str], says: str = "") -> Preset:
    """A figure of Parallel Q-Learning's paper: what policies reach, over time and over steps."""
    return Preset(
        about=about,
        envs=_BALL,
        arms=arms,
        flags="",
        show=("--x time --y eval/return", "--x steps --y eval/return"),
        full=_FULL,
        small=_SMALL,
        says=f"{says} {_SMALLER}".strip(),
    )


PQL_PRESETS: Mapping[str, Preset] = {
    "pql-figure3": _curves(
        "figures 3, C.4, C.5: PQL, PQL-D and PQL+SAC beside DDPG(n), SAC(n) and PPO",
        {
            "pql": "",
            "pql-d": "--set critic=categorical",
            "pql-sac": "--set algo.policy=sac",
            "ddpg-n": "--schedule sync",
            "sac-n": "--schedule sync --set algo.policy=sac",
            "ppo": "--algo ppo --set rollout=16 --set epochs=5 --evaluate 2",
        },
        "All make the same steps, PPO in a quarter of the time.",
    ),
    "pql-figure4": _curves(
        "figure 4: mixed exploration beside one noise for all replicas",
        {"mixed": "", **{s: f"--set noise_low={s} --set noise_high={s}" for s in NOISES}},
    ),
    "pql-figure6": _curves(
        "figure 6: updates of the critics for each of the policy",
        {n: f"--set beta_pv={n}" for n in ("1", "2", "4")},
    ),
    "pql-figure7": _curves(
        "figure 7: updates of the critics for each step",
        {n: f"--set beta_av={n}" for n in ("2", "4", "8", "12")},
    ),
    "pql-figureC2": _curves(
        "figure C.2: ratios as counts, and paced by the clock alone",
        {pacing: f"--pacing {pacing}" for pacing in ("count", "clock")},
    ),
    "pql-figureC3": _curves(
        "figure C.3: rewards that a target adds up",
        {n: f"--set n_step={n}" for n in ("1", "3", "5")},
    ),
}

_A2C, _PPO = "--algo a2c", "--algo ppo"
_MEANINGLESS = "After so few steps scores mean nothing yet: `--scale full` learns."

PRESETS: Mapping[str, Preset] = {
    "hts-rl-table1": Preset(
        about="tables 1, A7 and A8: Atari, final metric in time and minutes to both targets",
        envs=ATARI,
        arms=SCHEDULES,
        flags=_A2C,
        show=("--table 1", "--table A8"),
        full=Scale(steps=20_000_000, flags="--evaluate 1250"),
        small=Scale(steps=16_000, flags="--evaluate 20", envs=("atari:Breakout",), seeds="0"),
        says=_MEANINGLESS,
    ),
    "hts-rl-table2": Preset(
        about="tables 2, A10 and A9: football, minutes to 0.4 and 0.8 and final metric in time",
        envs=FOOTBALL,
        arms=SCHEDULES,
        flags=_PPO,
        show=("--table 2", "--table A9"),
        full=Scale(steps=5_000_000, flags="--evaluate 12"),
        small=Scale(
            steps=20_480, flags="--evaluate 1", envs=("gfootball:empty_goal_close",), seeds="0"
        ),
        says=_MEANINGLESS,
    ),
    "hts-rl-table3": Preset(
        about="table 3: 1 against 3 agents on raw images",
        envs=tuple(f"gfootball:3v1?agents={n}&representation=pixels" for n in (1, 3)),
        arms={"hts": ""},
        flags=f"{_PPO} --set model.first=dense",
        show=("--table 3",),
        full=Scale(steps=8_000_000),
        small=Scale(
            steps=48,
            flags="--envs 2 --set rollout=8 --set minibatches=1 --evaluate 0",
            seeds="0",
        ),
        compares_envs=True,
        says="2 replicas instead of 16, rollouts of 8 steps, nothing evaluated: without a GPU a "
        f"picture takes a second. {_MEANINGLESS}",
    ),
    "hts-rl-table4": Preset(
        about="table 4: numbers of actors; scores must be identical, to the last bit",
        envs=("gfootball:3v1",),
        arms={n: f"--actors {n}" for n in ("1", "4", "8", "16")},
        flags=_PPO,
        show=("--table 4",),
        full=Scale(steps=5_000_000),
        small=Scale(steps=16 * 128 * 8, flags="--evaluate 4", seeds="0"),
        says=_MEANINGLESS,
    ),
    "hts-rl-table5": Preset(
        about="table 5: lengths of rollout; how fast, and at which score",
        envs=("gfootball:3v1",),
        arms={n: f"--set rollout={n}" for n in ("4", "16", "64", "128", "256", "512")},
        flags=f"{_PPO} --actors 4",
        show=("--table 5",),
        full=Scale(steps=5_000_000),
        small=Scale(steps=16 * 256 * 4, flags="--evaluate 0", arms=("16", "64", "256"), seeds="0"),
        says=f"Nothing is evaluated. {_MEANINGLESS}",
    ),
    "hts-rl-tableA1": Preset(
        about="table A1: delayed gradient, truncated importance sampling, no correction",
        envs=("atari:BankHeist", "atari:Breakout", "atari:Seaquest"),
        arms={name: f"--correction {name}" for name in ("delayed", "truncated_is", "none")},
        flags=_A2C,
        show=("--table A1",),
        full=Scale(steps=20_000_000),
        small=Scale(steps=16_000, flags="--evaluate 100", envs=("atari:Breakout",), seeds="0"),
        says=_MEANINGLESS,
    ),
    "hts-rl-tableA2": Preset(
        about="table A2: steps/s of A2C on Atari, beside other implementations",
        envs=ATARI,
        arms=SCHEDULES,
        flags=f"{_A2C} --evaluate 0",
        show=("--table A2",),
        full=Scale(steps=1_000_000),
        small=Scale(steps=40_000, envs=("atari:BankHeist", "atari:Breakout"), seeds="0"),
    ),
    "hts-rl-figure4-left": Preset(
        about="figure 4, left: speed-up over step-time variance, of simulators that sleep",
        envs=tuple(f"sleeper:?mean=5&shape={shape}" for shape in SHAPES),
        arms=BARRIER,
        flags=f"{_PPO} --envs 16 --set rollout=16 --set stepping=threads --evaluate 0",
        show=("--speedup",),
        full=Scale(steps=200_000),
        small=Scale(
            steps=10_240,
            envs=tuple(f"sleeper:?mean=5&shape={shape}" for shape in ("16", "1", "0.25")),
            seeds="0",
        ),
        compares_envs=True,
        says="The paper's points are football and Atari games, with the variances that they have.",
    ),
    "hts-rl-figure4-right": Preset(
        about="figure 4, right: throughput over numbers of replicas",
        envs=("gfootball:counterattack_hard",),
        arms={
            f"{schedule}-{n}": f"--schedule {schedule} --envs {n}"
            for schedule in SCHEDULES
            for n in REPLICAS
        },
        flags=f"{_PPO} --evaluate 0",
        show=("--throughput",),
        full=Scale(steps=200_000),
        small=Scale(
            steps=4096,
            arms=tuple(f"{schedule}-{n}" for schedule in SCHEDULES for n in REPLICAS[:3]),
            seeds="0",
        ),
        says="Simulators that compute are no faster with more replicas than there are cores.",
    ),
    **PQL_PRESETS,
}
