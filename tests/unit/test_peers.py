"""`tools/bench`: from what contenders report to the table; nothing here starts any of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.peers import run
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
