"""`tools/bench` and `tools/pql_beside`: from what contenders report to the tables.

Nothing here starts any of them.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tools.peers import beside, run
from tools.peers.curves import Learnt, Point, judged, next_due, reached, until
from tools.peers.curves import table as learnt_table
from tools.peers.figures import Contender, Mark, rate, ratio, ratio_lines, table, turns
from tools.peers.homes import HERE, ROOT, cache


def test_start_up_does_not_count() -> None:
    """The clock runs from the first mark with enough steps to the last one."""
    marks = [Mark(0, 0.0), Mark(90, 100.0), Mark(110, 101.0), Mark(300, 102.0), Mark(510, 103.0)]
    assert rate(marks, after=100) == 200.0
    assert rate(marks, after=110) == 200.0
    assert rate(marks, after=111) == 210.0


@pytest.mark.parametrize("marks", [[], [Mark(5, 1.0)], [Mark(5, 1.0), Mark(10, 2.0)]])
def test_one_mark_is_no_rate(marks: list[Mark]) -> None:
    """A run that ended too early is refused rather than divided by nothing."""
    with pytest.raises(ValueError, match="fewer than two"):
        rate(marks, after=6)


def test_sides_take_turns() -> None:
    """A peer, one of ours, a peer, one of ours; whoever is left over comes last."""
    assert turns(["a", "b"], ["x"]) == ["a", "x", "b"]
    assert turns(["a"], ["x", "y", "z"]) == ["a", "x", "y", "z"]
    assert turns([], ["x"]) == ["x"]


def test_a_ratio_pairs_the_rates_of_a_round() -> None:
    """Medians make the ratio; its spread is over rounds, so that a slow minute strikes both."""
    ours = Contender("ours", rates=[300.0, 30.0, 200.0])
    peer = Contender("peer", rates=[100.0, 20.0, 80.0])
    found = ratio(ours, peer)
    assert found == ("ours", "peer", 2.5, 1.5, 3.0)
    assert ratio_lines([found]) == ["ours is 2.50 times as fast as peer (1.50 to 3.00)"]


def test_the_table_shows_median_and_spread() -> None:
    """Each line has the rates, the share of other programs, and the version that ran."""
    contenders = [
        Contender("peer", "peer 1.0", [900.4, 1100.0, 1000.0], [0.0, 0.02, 0.5]),
        Contender("ours", "hts 2", [12345.0, 12345.0, 20000.0], [0.0, 0.0, 0.0]),
    ]
    assert [line.split() for line in table(contenders)] == [
        ["median", "lowest", "highest", "others", "version"],
        ["peer", "1,000", "900", "1,100", "2%", "peer", "1.0"],
        ["ours", "12,345", "12,345", "20,000", "0%", "hts", "2"],
    ]


def test_our_marks_leave_the_end_out() -> None:
    """The last two updates have no rollout beside them; they would flatter us."""
    lines = [{"update": n, "steps": 64 * n, "time/seconds": n / 4, "x": 1} for n in range(1, 6)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert run.our_marks(text) == [Mark(64, 0.25), Mark(128, 0.5), Mark(192, 0.75)]


def test_our_command_asks_for_the_same_task() -> None:
    """Every size of the task is in the command line that trains ours."""
    task = run.Task(mean=5, replicas=16, rollout=4, epochs=2, minibatches=3, steps=999, seed=7)
    command = run.our_command(task, Path("there"))
    assert " ".join(command[1:]) == (
        "--algo ppo --env sleeper:?mean=5 --set replicas=16 --set rollout=4 --set algo.epochs=2 "
        "--set algo.minibatches=3 --steps 999 --seed 7 --run-dir there"
    )


def test_peers_live_in_the_users_cache() -> None:
    """The cache that the user chose, else the one at home, else the checkout's."""
    assert cache({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/hts/peers")
    assert cache({"XDG_CACHE_HOME": "", "HOME": "/h"}) == Path("/h/.cache/hts/peers")
    assert cache({}) == ROOT / ".cache" / "peers"


@pytest.mark.parametrize("peer", run.PEERS)
def test_every_package_of_a_peer_is_pinned(peer: str) -> None:
    """Each line names one exact version, and torch's is the one that ours uses."""
    lines = (HERE / f"{peer}.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(len(line.split("==")) == 2 for line in pins)
    assert peer in {line.split("==")[0] for line in pins}
    ours = (ROOT / "tools" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert {line for line in pins if line.startswith("torch==")} < set(ours)
    assert (HERE / run.PEERS[peer]).exists()


CURVE = [Point(100, 2.0, -900.0), Point(200, 4.5, -150.0), Point(300, 6.0, -300.0)]


def test_the_target_is_reached_at_the_first_policy_that_is_worth_it() -> None:
    """Exactly the target is enough, a later fall changes nothing, and no time is made up."""
    assert reached(CURVE, -150.0) == CURVE[1]
    assert reached(CURVE, -900.0) == CURVE[0]
    assert reached(CURVE, -149.9) is None
    assert reached([], 0.0) is None


def test_a_curve_ends_where_a_peer_stops() -> None:
    """At the target, which belongs to it; whoever never reaches it goes on."""
    assert until(CURVE, -200.0) == CURVE[:2]
    assert until(CURVE, 0.0) == CURVE


def test_versions_are_judged_when_a_peer_is() -> None:
    """The first at or behind each multiple, once where it is behind several, and the last one."""
    times = [0.5, 1.9, 2.1, 2.2, 3.9, 7.0, 7.5, 8.0, 9.0, 10.5]
    assert judged(times, every=2.0, limit=10.0) == [2, 5, 7, 8]
    assert judged(times, every=2.0, limit=8.0) == [2, 5, 7]
    assert judged(times, every=60.0, limit=10.0) == [8]
    assert judged(times, every=2.0, limit=0.4) == []
    assert [next_due(seconds, 2.0) for seconds in (0.0, 1.9, 2.0, 7.0)] == [2.0, 2.0, 4.0, 8.0]


def test_the_table_shows_when_each_has_learnt() -> None:
    """A line for each training, and how many seeds came there where there are several."""
    runs = [
        Learnt("ours", 0, "hts 2", 0.0, CURVE[:2]),
        Learnt("peer", 0, "peer 1", 0.25, CURVE[:1]),
        Learnt("ours", 1, "hts 2", 0.0, [Point(9000, 1.5, -100.0)]),
        Learnt("peer", 1, "peer 1", 0.0, CURVE),
    ]
    lines = learnt_table(runs, -200.0)
    assert [line.split() for line in lines[:5]] == [
        ["seed", "steps", "to", "target", "best", "last", "steps/s", "others"],
        ["ours", "0", "200", "4.5", "s", "-150.0", "-150.0", "44", "0%"],
        ["peer", "0", "100", "not", "-900.0", "-900.0", "50", "25%"],
        ["ours", "1", "9,000", "1.5", "s", "-100.0", "-100.0", "6,000", "0%"],
        ["peer", "1", "300", "4.5", "s", "-150.0", "-300.0", "50", "0%"],
    ]
    assert lines[5:] == [
        "ours: 2 of 2 seeds reached the target, after 3.0 s (1.5 to 4.5)",
        "peer: 1 of 2 seeds reached the target",
    ]


def test_our_policies_are_points_at_the_times_at_which_they_were_made() -> None:
    """Times are in the run's record, returns in what hts-eval says, by the same update."""
    metrics = "".join(
        json.dumps({"update": n, "steps": 64 * n, "time/seconds": n / 2}) + "\n" for n in (4, 8)
    )
    lines = [{"update": 8, "steps": 512, "eval/return": -7.0, "returns": [-6.0, -8.0]}]
    assert beside.our_curve(lines, beside.made_at(metrics)) == [Point(512, 4.0, -7.0)]


TASK = beside.Task(
    environment="Pendulum-v1",
    seconds=60,
    target=-200,
    every=2,
    seed=3,
    episodes=[5, 7],
    hidden=[64, 64],
    critic_hidden=[32],
    learning_starts=800,
    noise=0.1,
)


def test_versions_that_are_not_judged_are_not_played(tmp_path: Path) -> None:
    """One is made in every second, and judged are those of every second one and the last; what the
    end of the run has left half-written, or made behind the last line of its record, is none."""
    names = ("000000004", "000000008", "000000012", "000000016")
    for name in (*names, ".000000020"):
        path = tmp_path / "policies" / f"{name}.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert beside._thinned(tmp_path, {4: 1.0, 8: 2.0, 12: 3.0}, TASK) == 2
    assert sorted(path.stem for path in tmp_path.glob("policies/0*")) == ["000000008", "000000012"]


def test_our_training_is_ended_by_the_clock_and_judged_later() -> None:
    """It has the seed, keeps every version that it writes, and evaluates nothing on the way."""
    command = beside.our_command(["--config", "pql-pendulum"], TASK, Path("there"))
    assert " ".join(command[1:]) == (
        "--config pql-pendulum --seed 3 --steps 1000000000 --set evaluate_episodes=0 "
        "--set keep_policies=1000000000 --set checkpoint_every=0 --set log=none --quiet "
        "--run-dir there"
    )


def test_a_peer_is_told_the_same_task() -> None:
    """Its algorithm by name, and no target where nobody stops there."""
    told = beside.peer_task("SB3 TD3", TASK)
    assert (told["algorithm"], told["target"], told["episodes"]) == ("td3", -200, [5, 7])
    assert beside.peer_task("SB3 SAC", dataclasses.replace(TASK, whole=True))["target"] is None
    assert beside.SCRIPT.exists()


def test_our_clock_runs_from_the_first_update(tmp_path: Path) -> None:
    """Start-up is not training: an empty record is none."""
    now, metrics = [0.0], tmp_path / "metrics.jsonl"
    enough = beside.Enough(metrics, 10.0, lambda: now[0])
    assert not enough()
    metrics.touch()
    now[0] = 100.0
    assert not enough()
    metrics.write_text("{}\n")
    assert not enough()
    now[0] = 109.9
    assert not enough()
    now[0] = 110.0
    assert enough()
