"""`hts-report`: the page of a real run, in a real browser, and with hostile records."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hts.cli.report import main
from hts.config import Given, configure
from hts.report.command import arguments
from hts.report.curves import columns
from hts.report.recorded import read
from hts.report.svg import WIDTH, Line, chart, short, thinned
from tests.seeing import made
from tests.seeing.browser import PROGRAM, Page, browser

UPDATES = 10
in_a_browser = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not installed: the page is not looked at in a browser"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with everything on it: evaluations, shares of the machine, legs, replaced processes."""
    folder = made.run(tmp_path_factory.mktemp("report") / "run", learning_rate=0.003)
    record = made.lines(folder)
    for line in record:
        line["machine/learner_working"] = 0.25
        line["machine/learner_for_executors"] = 0.75
        line["machine/cores_busy"] = 1.98
        line["machine/memory"] = 669.0 + line["update"]
    record[4]["train/kl"] = float("nan")
    made.write(folder, record)
    told = [
        {"update": n, "steps": 64 * n, "eval/return": 9.5, "returns": [9, 10], "lengths": [9, 10]}
        for n in (5, 10)
    ]
    (folder / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    legs = [{"behind": 0, "began": "2026-01-02T03:04:05"}, {"behind": 6, "began": "later"}]
    made.change(folder, "manifest.json", legs=legs)
    made.change(folder, "result.json", replaced=["executor-0 died of SIGKILL", "x" * 300])
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def written(folder: Path, out: Path) -> str:
    assert main([str(folder), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


def points(text: str, name: str) -> int:
    """Points of the line of this chart."""
    (line,) = re.findall(rf'data-name="{name}">.*?<polyline [^>]*points="([^"]*)"', text)
    return len(line.split())


def test_the_page_holds_the_run(run: Path, tmp_path: Path) -> None:
    """What differs comes first; every number of each record is a point; legs and replacements are
    told; the digest is there."""
    text = written(run, tmp_path / "run.html")
    digest = json.loads((run / "result.json").read_text())["digest"]
    assert f"<code>{digest}</code>" in text
    assert text.index("algo.learning_rate") < text.index("everything else")
    assert text.index("everything else") < text.index("algo.gamma")
    assert points(text, "train/entropy") == UPDATES
    assert points(text, "train/kl") == UPDATES - 1
    assert points(text, "eval/return") == 2
    assert "went on later behind update 6" in text
    assert "executor-0 died of SIGKILL" in text


def test_the_headline_is_the_evaluation(run: Path, tmp_path: Path) -> None:
    """With its interval, before the training return, before amounts; without an evaluation the
    training return comes first."""
    text = written(run, tmp_path / "run.html")
    tiles = re.findall(r'<div class="(tile[^"]*)"><b>([^<]*)</b><span>([^<]*)</span>', text)
    assert [kind for kind, _, _ in tiles[:3]] == ["tile headline", "tile headline", "tile"]
    mean, low, high = map(float, re.findall(r"[\d.]+", tiles[0][1]))
    assert low < mean == 9.5 < high
    assert tiles[0][2].startswith("Evaluation return, mean and 95 % interval of 4 episodes")
    assert tiles[1][2] == "Training return, mean over the latest 100 episodes that ended"
    plain = made.copy(run, tmp_path / "plain")
    (plain / "eval.jsonl").unlink()
    text = written(plain, tmp_path / "plain.html")
    assert re.findall(r"</b><span>([^<,]*)", text)[0] == "Training return"


def axis(text: str, name: str) -> list[str]:
    """Return the numbers beside the upright axis of this chart."""
    (drawn,) = re.findall(rf'data-name="{name}">(.*?)</svg>', text)
    return re.findall(r'class="end">([^<]*)<', drawn)[:-1]


def test_charts_have_titles_with_units_and_amounts_begin_at_zero(run: Path, tmp_path: Path) -> None:
    """No raw name is a title; cores, memory and speed start at 0, a return where it is."""
    text = written(run, tmp_path / "run.html")
    titles = re.findall(r"<figcaption>([^<]*?) ?<", text)
    assert not [title for title in titles if "/" in title.replace("steps/s", "")]
    assert {"Training return (reward)", "KL divergence (nats)", "Memory (MB)", "Busy cores"} <= {
        *titles
    }
    for name in ("machine/cores_busy", "machine/memory", "time/steps_per_second"):
        assert float(axis(text, name)[0]) == 0.0
    assert float(axis(text, "episode/return")[0]) > 0.0
    assert "waiting for executors" in text


def test_the_command_on_the_page_is_this_experiment(run: Path) -> None:
    """What it is made of has the identity of the run; of an experiment that this version does not
    know there is no command."""
    typed = arguments(read(run))
    assert typed is not None
    words = shlex.split(typed)
    sets = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    paths = {"--algo": "experiment.algo.name", "--envs": "experiment.replicas"}
    flags = [
        Given(paths.get(word, f"experiment.{word[2:]}"), words[at + 1], word)
        for at, word in enumerate(words)
        if word.startswith("--") and word != "--set"
    ]
    made_again = configure(None, sets, flags).config.experiment
    assert made_again.identity() == read(run).identity


def test_another_version_has_no_command(run: Path, tmp_path: Path) -> None:
    """It names the commit instead."""
    other = made.copy(run, tmp_path / "other")
    made.change(other, "manifest.json", experiment="0" * 16, commit="abc<def")
    text = written(other, tmp_path / "other.html")
    assert "abc&lt;def" in text
    assert "<pre>" not in text


def test_whatever_is_in_the_files_is_text(run: Path, tmp_path: Path) -> None:
    """A script or a tag in any file is shown, not obeyed; names of metrics included."""
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    bad = made.copy(run, tmp_path / "bad")
    manifest = json.loads((bad / "manifest.json").read_text())
    config = {**manifest["config"], "experiment.env": evil, evil: evil}
    versions = {**manifest["versions"], evil: evil}
    legs = [{"behind": 0, "began": evil}]
    made.change(bad, "manifest.json", config=config, versions=versions, legs=legs, commit=evil)
    made.change(bad, "result.json", status=evil, digest=evil, time=evil, replaced=[evil])
    line = json.dumps({"update": 1, "steps": 64, f"eval/{evil}": 1.0, "eval/x": evil})
    (bad / "eval.jsonl").write_text(f"{line}\n")
    text = written(bad, tmp_path / "bad.html")
    assert "<script" not in text
    assert "<img" not in text
    assert "&lt;script&gt;" in text


def test_records_of_another_form_have_a_page(run: Path, tmp_path: Path) -> None:
    """What is not as it should be is left out."""
    odd = made.copy(run, tmp_path / "odd")
    made.change(odd, "manifest.json", legs=5, origins=[1])
    made.change(odd, "result.json", replaced="x", interrupted={}, time=3, sps=None, status=7)
    assert "begun" not in written(odd, tmp_path / "odd.html")


def test_a_run_without_an_update_has_a_page(run: Path, tmp_path: Path) -> None:
    """And so has one that is still going on, with half a last line."""
    empty = made.copy(run, tmp_path / "empty")
    for name in ("result.json", "eval.jsonl"):
        (empty / name).unlink()
    made.write(empty, [])
    assert "still running" in written(empty, tmp_path / "empty.html")
    made.write(empty, made.lines(run)[:1], '{"upd')
    assert "<circle" in written(empty, tmp_path / "one.html")


def test_the_page_goes_beside_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --out; where nothing can be written, and where there is no run, that is said."""
    assert main([str(made.copy(run, tmp_path / "copy"))]) == 0
    assert (tmp_path / "copy" / "report.html").exists()
    assert main([str(run), "--out", str(tmp_path / "none" / "x.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main([str(tmp_path)]) == 2
    assert "not the directory of a run" in capsys.readouterr().err


def test_long_lines_keep_their_peaks() -> None:
    """Of 100,000 values at most 400 are drawn, the highest and the lowest among them."""
    y = np.sin(np.arange(100_000))
    y[71_234], y[5] = 9.0, -9.0
    few = thinned(Line("x", np.arange(100_000.0), y))
    assert len(few.x) <= 400
    assert (few.y.max(), few.y.min()) == (9.0, -9.0)
    assert np.all(np.diff(few.x) > 0)


@pytest.mark.parametrize("values", [[0.0, 0.0], [5.0, 5.0], [-1e-9, 1e-9], [1e12, -1e12], [3.0]])
def test_charts_of_all_sizes_stay_in_their_frame(values: list[float]) -> None:
    """Also where all values are equal, there is but one, or they are tiny or huge."""
    y = np.array(values)
    drawn = chart([Line("x", np.arange(len(y)) + 1.0, y)], "x")
    places = [float(x) for x in re.findall(r'c?x="([-\d.]+)"', drawn)]
    assert all(0 <= place <= WIDTH for place in places)
    assert "nan" not in drawn
    assert 1 <= drawn.count('class="grid"') <= 12


def test_numbers_are_short() -> None:
    """As on the axes, and beside a name."""
    assert [short(value, 500.0) for value in (0.0, 500.0, 1500.0)] == ["0", "500", "1.5k"]
    assert [short(value, 2000.0) for value in (0.0, 2000.0)] == ["0", "2k"]
    assert [short(value, 0.05) for value in (0.0, 0.65, -0.1)] == ["0.00", "0.65", "-0.10"]
    assert (short(2.5e-7), short(20_096.0), short(3e-7, 1e-7)) == ("2.5e-07", "20.1k", "3e-07")


@in_a_browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it(run: Path, tmp_path: Path, page: Page, width: int, dark: bool) -> None:
    """Without a complaint, asking nobody, as wide as the screen and no wider, with every chart
    visible, in the colours that were asked for."""
    out = tmp_path / "run.html"
    written(run, out)
    page.open(out, width=width, dark=dark)
    page.value("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.value("document.documentElement.scrollWidth") <= width
    drawn = page.value(
        "Object.fromEntries([...document.querySelectorAll('svg')].filter(s => s.querySelector("
        "'polyline')).map(s => [s.dataset.name, s.querySelector('polyline').points.length]))"
    )
    series = columns(read(run), "steps")
    assert drawn == {name: len(series[name].x) for name in drawn}
    assert {"train/entropy", "train/kl", "eval/return", "episode/return"} <= set(drawn)
    smallest = "Math.min(...[...document.querySelectorAll('svg')].map(s => s.clientWidth))"
    assert page.value(smallest) > 200
    back = page.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back))) < 200) == dark
    assert page.complaints == []


@in_a_browser
def test_the_browser_test_can_fail(tmp_path: Path, page: Page) -> None:
    """A page that loads something and is too wide is noticed."""
    bad = tmp_path / "bad.html"
    bad.write_text('<div style="width:2000px">.</div><img src="gone.png"><script>x.y</script>')
    page.open(bad, width=360)
    assert page.value("document.documentElement.scrollWidth") > 360
    assert len(page.complaints) >= 2
    page.complaints.clear()
