"""What a person sees of a run at a terminal, and elsewhere."""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hts.report import live
from hts.report.advice import advise
from hts.report.drawing import Style, width_of
from hts.report.live import Live, Seen, duration, view
from hts.report.terminal import _clean, _Drawn
from hts.report.vitals import ACTORS, EXECUTORS, LEARNER, SIMULATORS, WORKED, Kind, Setting, Vitals
from tests.fakes.screens import watched
from tests.limits import HANG

COMMAND = [sys.executable, "-W", "error", "-m", "hts.cli.train"]
SMOKE = ["--config", "smoke", "--evaluate", "0", "--set", "log=none"]
CREW = ["--executors", "2", "--set", "stepping=turns"]
SERIAL = ["--set", "serial=true"]
PLAINLY = [*SERIAL, "--plain"]

SETTING = Setting(replicas=16, shards=4)


def machine(
    executors: tuple[int, dict[str, float]],
    learner: dict[str, float],
    actors: tuple[int, dict[str, float]] | None = None,
    *,
    busy: float,
    setting: Setting = SETTING,
) -> Vitals:
    """A machine of two cores, as it might be seen."""
    kinds = [Kind("executor", *executors), Kind("learner", 1, learner)]
    if actors is not None:
        kinds.insert(1, Kind("actor", *actors))
    return Vitals(setting, tuple(kinds), cores=2, busy=busy)


METRICS = {
    "update": 362,
    "train/policy_loss": -0.0108,
    "train/value_loss": 8.8e-6,
    "train/entropy": 0.1451,
    "train/kl": 0.00788,
    "train/clip_fraction": 0.0859,
    "train/explained_variance": 0.9069,
    "train/lag": 1.0,
    "episode/return": 487.25,
    "episode/score": 0.5,
    "episode/length": 12345.0,
    "episode/count": 384,
}
SEEN = Seen(
    "ppo on gym:CartPole-v1, seed 0",
    92_672,
    150_016,
    seconds=3725.0,
    latest=14_269.0,
    mean=14_189.0,
    left=4.0,
    chain="9969a31a6a06a6b6c6d6e6f601234567",
    metrics=METRICS,
    curve=[(256.0 * n, float(n)) for n in range(300)],
    vitals=machine(
        (2, {WORKED: 0.25, LEARNER: 0.05, ACTORS: 0.7}),
        {WORKED: 0.1, EXECUTORS: 0.9},
        (1, {WORKED: 0.9, EXECUTORS: 0.1}),
        busy=2.0,
    ),
)
PLAIN = Style(colour=False)


def drawn(seen: Seen, columns: int, rows: int, style: Style = PLAIN) -> list[str]:
    return [style.text(line) for line in view(seen, columns, rows, style)]


@pytest.mark.parametrize("columns", [80, 200])
def test_everything_is_seen_at_once(columns: int) -> None:
    """In 24 rows, at both widths: progress, speed, return, losses, the machine and the digest."""
    lines = drawn(SEEN, columns, 23)
    text = "\n".join(lines)
    assert len(lines) <= 23
    assert max(map(len, lines)) == columns, "the width is used, and not passed"
    for said in (
        *("ppo on gym:CartPole-v1, seed 0", "digest 9969a31a6a06", " 62 %", "0:04 left"),
        *("92,672 of 150,016 steps", "14,269 now", "14,189 mean", "1:02:05 passed"),
        *("487.2", "score      0.5", "12,345 steps   384 episodes", "-0.0108 policy loss"),
        *("8.8e-06 value loss", "0.1451 entropy", "0.00788 KL", "0.0859 clipped"),
        *("0.9069 explained", "▁", "█"),
        *("executors 2", "working  25 %  waiting for actors 70 %, for the learner 5 %"),
        *("actor   ", "working  90 %", "learner   ", "waiting for executors 90 %"),
        "Executors wait for the actor 70 % of the time: --actors 0 would help.",
    ):
        assert said in text, f"{said!r} is not in\n{text}"
    for noise in ("lag", "critic", "mean value", "rollout", "┤"):
        assert noise not in text


def test_off_policy_learning_shows_critics_and_values() -> None:
    """A deterministic policy reports no entropy, and its update has no numbers of PPO's."""
    metrics = {"update": 9, "train/policy_loss": 6.5, "train/critic_loss": 0.25}
    seen = dataclasses.replace(SEEN, metrics={**metrics, "train/value": -6.75, "train/lag": 1.0})
    text = "\n".join(drawn(seen, 80, 23))
    assert "6.5 policy loss   0.25 critic loss   -6.75 mean value" in text
    for noise in ("lag", "entropy", "update  "):
        assert noise not in text


def test_a_rollout_that_fills_for_long_is_shown() -> None:
    """Also before the first update."""
    for metrics in (METRICS, {}):
        seen = dataclasses.replace(SEEN, metrics=metrics, filling=(1536, 4096))
        text = "\n".join(drawn(seen, 80, 23))
        assert "rollout    1,536 of 4,096 steps taken   38 % filled" in text
        assert "14,269 now" in text
        assert ("updates" in text) == bool(metrics)


@pytest.mark.parametrize(("columns", "rows"), [(119, 39), (199, 49)])
def test_a_tall_terminal_has_a_curve_that_fills_it(columns: int, rows: int) -> None:
    """Rows for messages stay free; both axes have numbers and names, and the line goes from the
    lower left to the upper right corner."""
    lines = drawn(SEEN, columns, rows)
    assert len(lines) == rows - 8
    assert max(map(len, lines)) == columns
    begin = next(n for n, line in enumerate(lines) if "Training return" in line)
    end = next(n for n, line in enumerate(lines) if "environment steps" in line)
    assert "mean over the latest 100 episodes that ended (reward)" in lines[begin]
    curve = lines[begin + 1 : end - 1]
    assert [line[:10].rstrip() for line in curve if "┤" in line][-1] == "       0 ┤"
    assert "100 ┤" in "\n".join(curve)
    assert "20k" in lines[end]
    assert curve[0][-1] > "\u2800"
    assert curve[-1][10] > "\u2800"
    columns_used = {at for line in curve for at, each in enumerate(line) if each > "\u2800"}
    assert columns_used == set(range(10, columns)), "the line has no gap"
    assert "▁" not in "\n".join(lines), "the curve in one row would be the same again"


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [-1e200, 1e200], [1e-9, 2e-9], [0.3, 4.5], [5.0] * 999]
)
def test_any_numbers_make_a_curve(values: list[float]) -> None:
    """Equal, huge and tiny ones; no line is wider than the terminal."""
    points = [(float(n), value) for n, value in enumerate(values)]
    for style in (PLAIN, Style(colour=False, blocks=False)):
        seen = dataclasses.replace(SEEN, curve=points)
        lines = drawn(seen, 120, 40, style)
        assert len(lines) == 32
        assert max(map(len, lines)) <= 120
        assert "".join(lines).isascii() or style.blocks


def test_speed_and_filling_count_steps_of_unfinished_rollouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rollouts of 1,000 steps that take 20 s each: the speed is 50 steps/s all the time, and 5 s
    after an update the filling is shown."""
    now = 100.0
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now))
    view_of = Live("ppo on x:, seed 0", 4, 1000, PLAIN)
    view_of.begin(lambda: Vitals(SETTING, taken=2000 + round(50 * (now - 100.0))), 2000, 0.0)

    def text() -> str:
        return "\n".join(PLAIN.text(line) for line in view_of.lines(80, 23))

    def passes(seconds: int) -> str:
        nonlocal now
        for _ in range(seconds):
            now += 1.0
            text()
        return text()

    assert "rollout" not in passes(4)
    shown = passes(6)
    assert "steps/s    50 now   50 mean   0:10 passed" in shown
    assert "rollout    500 of 1,000 steps taken   50 % filled" in shown
    assert "2,000 of 4,000 steps  0:30 left" in shown
    assert "rollout" not in passes(10), "it is full, and waits for the learner"
    view_of.update({"update": 3, "steps": 3000, "episode/return": math.nan}, "chain")
    assert "rollout" not in passes(4)
    assert "rollout    250 of 1,000" in passes(1)
    view_of.ending("interrupted")
    assert "rollout" not in text()


@pytest.mark.parametrize("columns", [1, 7, 20, 40, 60, 79, 80, 139, 140, 200, 400])
@pytest.mark.parametrize("rows", [1, 3, 8, 23])
def test_no_line_is_too_wide_and_the_view_not_too_high(columns: int, rows: int) -> None:
    """Whatever the size, with long names and large numbers; what matters most goes last."""
    long = dataclasses.replace(
        SEEN,
        title=f"ppo on python:{'long.' * 60}make?level=3, seed 123456789",
        steps=10**14,
        of=10**15,
        metrics={**METRICS, "episode/return": -1.23456e200, "train/kl": float("nan")},
    )
    for seen in (SEEN, long, Seen("a", 0, 0), dataclasses.replace(SEEN, curve=[])):
        lines = view(seen, columns, rows, PLAIN)
        assert 1 <= len(lines) <= rows
        assert max(map(width_of, lines)) <= columns
    if rows == 1 and columns >= 80:
        assert "92,672" in drawn(SEEN, columns, rows)[0], "how far it is goes last"


@pytest.mark.parametrize("metrics", [METRICS, {}], ids=["under way", "before the first update"])
def test_seats_of_simulators_that_dial_in_are_seen(metrics: dict[str, float]) -> None:
    """How many are filled, also while the run waits for the first ones; and nothing elsewhere."""
    assert SEEN.vitals is not None
    vitals = dataclasses.replace(SEEN.vitals, filled=(3, 4))
    filled = dataclasses.replace(SEEN, metrics=metrics, vitals=vitals)
    assert "seats      3 of 4 filled" in drawn(filled, 80, 23)
    assert not [line for line in drawn(SEEN, 80, 23) if line.startswith("seats")]


def test_names_that_are_too_long_keep_both_ends() -> None:
    """And wide characters count twice."""
    title = f"ppo on python:{'世' * 60}.make?level=3, seed 7"
    line = view(dataclasses.replace(SEEN, title=title), 80, 23, PLAIN)[1]
    assert width_of(line) == 80
    assert line[0].text.startswith("ppo on python:世")
    assert line[0].text.endswith("seed 7")
    assert "…" in line[0].text


def test_only_words_and_ascii_where_nothing_else_can_be_shown() -> None:
    """Without colours there is no control sequence, without blocks no character beyond ASCII."""
    ascii_only = "\n".join(drawn(SEEN, 80, 23, Style(colour=False, blocks=False)))
    assert ascii_only.isascii()
    assert "\x1b" not in ascii_only
    coloured = "\n".join(drawn(SEEN, 80, 23, Style()))
    assert "\x1b[32m" in coloured


def of(**changes: object) -> Setting:
    return dataclasses.replace(SETTING, **changes)  # type: ignore[arg-type]


WAITING_FOR_LEARNER = (1, {WORKED: 0.29, LEARNER: 0.71})
BUSY, IDLE = {WORKED: 0.98, EXECUTORS: 0.02}, {WORKED: 0.1, EXECUTORS: 0.9}
STEPPING = (1, {WORKED: 0.97, LEARNER: 0.03})


@pytest.mark.parametrize(
    ("seen", "says", "never"),
    [
        (
            machine(WAITING_FOR_LEARNER, BUSY, busy=1.2),
            "The executor waits for the learner 71 % of the time: --learners 2 would help.",
            "another result",
        ),
        (
            machine(WAITING_FOR_LEARNER, BUSY, busy=1.95),
            "of the time: fewer epochs would help, with another result.",
            "--learners",
        ),
        (
            machine(WAITING_FOR_LEARNER, BUSY, busy=1.2, setting=of(shards=1)),
            "of the time: fewer epochs would help, with another result.",
            "--learners",
        ),
        (
            machine(STEPPING, IDLE, busy=1.05),
            "The learner waits for the executor 90 % of the time: --executors 2 would help.",
            "another result",
        ),
        (
            machine((2, STEPPING[1]), IDLE, busy=2.0),
            "waits for executors 90 % of the time: a machine with more cores would help.",
            "--executors",
        ),
        (
            machine(STEPPING, IDLE, busy=1.05, setting=of(replicas=1)),
            "90 % of the time: faster steps of the environment would help.",
            "--executors",
        ),
        (
            machine((2, {WORKED: 0.99, LEARNER: 0.01}), IDLE, busy=0.2),
            "Steps wait without computing: --set stepping=threads would overlap them.",
            "--executors",
        ),
        (
            machine(
                (1, {WORKED: 0.06, SIMULATORS: 0.94}), IDLE, busy=0.6, setting=of(threads=True)
            ),
            "waits for simulators 94 % of the time: --envs 32 would help, with another result.",
            "--executors",
        ),
        (
            machine(
                (2, {WORKED: 0.3, ACTORS: 0.7}),
                IDLE,
                (1, {WORKED: 0.95, EXECUTORS: 0.05}),
                busy=1.0,
            ),
            "Executors wait for the actor 70 % of the time: --actors 2 would help.",
            "--actors 0",
        ),
        (
            machine(
                (2, {WORKED: 0.3, ACTORS: 0.7}),
                IDLE,
                (1, {WORKED: 0.6, EXECUTORS: 0.4}),
                busy=1.0,
                setting=of(device="cuda"),
            ),
            "70 % of the time: more blocks would help (--set blocks=N).",
            "--actors",
        ),
        (
            machine(WAITING_FOR_LEARNER, IDLE, busy=1.0, setting=of(schedule="sync")),
            "--schedule hts would run both at once, with another result.",
            "--learners",
        ),
        (
            machine((2, {WORKED: 0.6, LEARNER: 0.4}), IDLE, busy=1.9, setting=of(barrier=True)),
            "40 % of the time: --schedule hts would help, with the same result.",
            "another result",
        ),
        (Vitals(SETTING), "Leave out serial=true to train in several processes", "help"),
        (
            dataclasses.replace(machine(STEPPING, IDLE, busy=2.0), others=0.95),
            "Other programs use 0.9 of 2 cores: stopping them would help.",
            "--executors",
        ),
        (
            dataclasses.replace(
                machine(STEPPING, IDLE, busy=2.0, setting=of(remote=True)), others=1.0
            ),
            "a machine with more cores would help.",
            "stopping",
        ),
        (
            dataclasses.replace(
                machine((1, {WORKED: 0.06, SIMULATORS: 0.94}), IDLE, busy=2.0), others=1.9
            ),
            "--envs 32 would help",
            "stopping",
        ),
        (
            machine((1, {WORKED: 0.06, SIMULATORS: 0.94}), IDLE, busy=2.0, setting=of(remote=True)),
            "a machine with more cores would help.",
            "--envs",
        ),
    ],
)
def test_the_advice_is_what_would_help(seen: Vitals, says: str, never: str) -> None:
    """Who is waited for, and the change that helps; never one for which there is no core."""
    said = advise(seen)
    assert says in said
    assert never not in said
    assert said[0].isupper()
    assert said[:-1].count(".") == said.count("0.9"), "one sentence"
    assert ";" not in said
    assert len(said) < 120


def test_time_as_a_person_says_it() -> None:
    """Seconds, minutes, hours, days."""
    assert [duration(n) for n in (0.4, 65, 3725, 180_065)] == [
        "0:00",
        "1:05",
        "1:02:05",
        "2d 2:01:05",
    ]


def test_a_view_is_erased_at_the_width_that_the_terminal_has_now() -> None:
    """A line of 100 columns takes two rows of 80; an empty one takes one."""
    assert _Drawn([100, 0, 80, 81]).erase(80) == b"\r\x1b[6A\x1b[J"
    assert _Drawn([]).erase(80) == b"\r\x1b[J"


def test_what_others_write_moves_no_cursor() -> None:
    """Colours stay; a progress bar that overwrites itself leaves its last state."""
    said = b"a\x1b[31mred\x1b[0m\x1b[2J\x1b[5A\x1b[?25l\x07\nbar 1\rbar 2\r\nend\x1b7"
    assert _clean(said) == b"a\x1b[31mred\x1b[0m\nbar 2\nend7"


def test_a_run_at_a_terminal_from_begin_to_end(tmp_path: Path) -> None:
    """Messages above, among them a simulator's own; the view below stays when it is over, and the
    result stands under it. A digest is that of a run that nobody watches."""
    path = tmp_path / "run"
    world = ["--env", "python:tests.fakes.small_worlds:Announcing", "--steps", "8192"]
    with watched([*COMMAND, *SMOKE, *CREW, *world, "--run-dir", str(path)]) as there:
        assert there.ended() == 0
        screen = there.screen
    rows = screen.text.splitlines()
    order = [
        next(number for number, row in enumerate(rows) if sentence in row)
        for sentence in (
            *("hts-train: experiment", "step 300 is played", "ppo on python:", "100 %"),
            *("executors 2", "hts-train: done: digest"),
        )
    ]
    assert order == sorted(order)
    for only in ("ppo on python:", "executors 2", "steps/s"):
        assert screen.text.count(only) == 1, "no old view is left"
    alone = [*COMMAND, *SMOKE, *SERIAL, *world, "--quiet", "--run-dir", str(tmp_path / "alone")]
    said = subprocess.run(alone, capture_output=True, text=True, timeout=HANG)
    digests = [
        json.loads((p / "result.json").read_text())["digest"] for p in (path, tmp_path / "alone")
    ]
    assert digests[0] == digests[1]
    lines = [line for line in said.stderr.splitlines() if line.startswith("hts-train")]
    assert len(lines) == 1, "quiet: the result alone"
    assert lines[0].startswith(f"hts-train: done: digest {digests[0]}")


def test_ctrl_c_in_a_window_that_is_resized(tmp_path: Path) -> None:
    """Exit code 130, the view is seen once (what was higher than the smaller window has scrolled
    away), the cursor was never hidden, no colours under NO_COLOR."""
    world = ["--env", "python:tests.fakes.small_worlds:Announcing", "--steps", "1e9"]
    typed = [*COMMAND, *SMOKE, *CREW, *world, "--run-dir", str(tmp_path / "run")]
    with watched(typed, 200, 50, {"NO_COLOR": "1"}) as there:
        there.until("updates")
        there.resize(120, 30)
        there.process.send_signal(signal.SIGINT)
        assert there.ended() == 130
        screen = there.screen
    seen = "\n".join(screen.text.splitlines()[-30:])
    assert seen.count("ppo on python:") == 1
    assert "interrupted" in seen
    assert f"go on with: hts-train --resume {tmp_path / 'run'}" in screen.text.replace("\n", "")
    assert all(code.endswith((b"A", b"J")) for code in screen.codes)


def test_a_run_that_fails_at_a_terminal(tmp_path: Path) -> None:
    """A simulator that raises: exit code 1, its words on the screen, the view above them."""
    world = ["--env", "python:tests.fakes.failing:make?after=50"]
    typed = [*COMMAND, *SMOKE, *CREW, *world, "--run-dir", str(tmp_path / "run")]
    with watched(typed) as there:
        assert there.ended() == 1
        text = there.screen.text
    assert "failed: " in text
    assert "the simulator's own words" in text
    assert text.count("ppo on python:") == 1


def test_elsewhere_there_are_plain_lines_or_json(tmp_path: Path) -> None:
    """A dumb terminal and `--plain` show no view; `--json-log` is one object in each line."""
    for name, more, typed in (("dumb", {"TERM": "dumb"}, SERIAL), ("plain", {}, PLAINLY)):
        with watched(
            [*COMMAND, *SMOKE, *typed, "--run-dir", str(tmp_path / name)], more=more
        ) as there:
            assert there.ended() == 0
            assert there.screen.codes == []
            assert "4,096 of 4,096 steps" in there.screen.text
    typed = [*COMMAND, *SMOKE, *SERIAL, "--json-log", "--run-dir", str(tmp_path / "json")]
    said = subprocess.run(typed, capture_output=True, text=True, timeout=HANG)
    found = [json.loads(line) for line in said.stdout.splitlines()]
    assert said.stderr == ""
    assert {each["kind"] for each in found} == {"message", "update", "result"}
    (last,) = [each for each in found if each["kind"] == "result"]
    updates = [each for each in found if each["kind"] == "update"]
    assert (last["status"], updates[-1]["steps"]) == ("done", last["steps"])
    assert updates[-1]["digest"] == last["digest"]
