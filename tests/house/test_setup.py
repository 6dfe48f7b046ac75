"""The set-up tool's decisions, asked from its own functions in throw-away checkouts."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.limits import HANG

GIB = 1 << 30
BASH = [
    path
    for path in (*(ROOT / "tools").iterdir(), ROOT / ".ci" / "run")
    if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env bash")
]


def _bash(code: str, root: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-uc", f'source "{root}/tools/setup.sh"; {code}'],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that counts as set up, in a folder with a space; its job prints what it gets."""
    root = tmp_path / "a checkout"
    shutil.copytree(ROOT / "tools", root / "tools", symlinks=True)
    shutil.copy(ROOT / "setup.py", root)
    client = root / "hts" / "remote" / "js"
    client.mkdir(parents=True)
    shutil.copy(ROOT / "hts" / "remote" / "js" / "package-lock.json", client)
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / ".setup").mkdir()
    (root / ".venv" / "bin" / "python").symlink_to(sys.executable)
    for name in ("hts-train", "hts-check", "hts-doctor"):
        job = root / ".venv" / "bin" / name
        job.write_text('#!/bin/sh\nprintf "%s|" "${0##*/}" "$@"\nexit 7\n')
        job.chmod(0o755)
    assert _bash("level=run; record_ready", root).returncode == 0
    return root


def _call(command: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["hts-train", "hts-check", "hts-doctor"])
def test_a_tool_is_its_job_once_everything_is_there(
    checkout: Path, tmp_path: Path, name: str
) -> None:
    """From any folder, arguments and exit code pass through and set-up prints nothing."""
    result = _call(checkout / "tools" / name, "--set", "a b", "*", folder=tmp_path)
    assert result.stdout == f"{name}|--set|a b|*|"
    assert result.stderr == ""
    assert result.returncode == 7


def test_a_measuring_tool_runs_with_the_python_of_its_checkout(
    checkout: Path, tmp_path: Path
) -> None:
    """From any folder, too, and through a link."""
    link, python = tmp_path / "conv", checkout / ".venv" / "bin" / "python"
    link.symlink_to(checkout / "tools" / "conv_cost")
    python.unlink()
    shutil.copy(python.with_name("hts-train"), python)
    assert _bash("level=run; record_ready", checkout).returncode == 0
    result = _call(link, "--rows", "a b", folder=tmp_path)
    assert result.stdout == f"python|{link}|--rows|a b|"
    assert (result.stderr, result.returncode) == ("", 7)


def test_no_tool_is_without_set_up() -> None:
    """Whatever can be called there sources it, or begins with the checkout's Python."""
    for path in (ROOT / "tools").iterdir():
        if path.is_file() and os.access(path, os.X_OK) and path.name != "setup.sh":
            text = path.read_text(encoding="utf-8")
            assert "setup.sh" in text or "/python" in text.splitlines()[0], path.name


def test_a_tool_can_be_called_through_a_link(checkout: Path, tmp_path: Path) -> None:
    """A link in somebody's own folder of commands finds the checkout."""
    link = tmp_path / "hts-train"
    link.symlink_to(checkout / "tools" / "hts-train")
    assert _call(link, folder=tmp_path).stdout == "hts-train|"


def test_the_quiet_path_costs_next_to_nothing(checkout: Path) -> None:
    """The best of five later uses takes less than three starts of Python in the same seconds."""
    ours, starts = [], []
    for _ in range(5):
        since = time.perf_counter()
        _call(checkout / "tools" / "hts-train", folder=checkout)
        ours.append(time.perf_counter() - since)
        since = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
        starts.append(time.perf_counter() - since)
    assert min(ours) < 3 * min(starts)


@pytest.mark.parametrize(
    "name",
    [
        "setup.py",
        "tools/constraints.txt",
        "tools/football.sh",
        "hts/remote/js/package-lock.json",
    ],
)
def test_a_changed_input_is_noticed(checkout: Path, name: str) -> None:
    """What set-up was made from is compared by content."""
    assert _bash("is_ready run", checkout).returncode == 0
    with (checkout / name).open("a") as file:
        file.write("# changed\n")
    assert _bash("is_ready run", checkout).returncode != 0


def test_a_moved_checkout_is_noticed(checkout: Path) -> None:
    """Paths inside a virtual environment are absolute, so a moved one is made again."""
    moved = checkout.rename(checkout.with_name("moved"))
    assert _bash("is_ready run", moved).returncode != 0


def test_a_vanished_interpreter_is_noticed(checkout: Path) -> None:
    """An upgrade of the system's Python leaves a virtual environment without its interpreter."""
    (checkout / ".venv" / ".setup" / "ready-run").write_text(
        _bash("inputs", checkout).stdout + "\n/nowhere/python3.11\n"
    )
    assert _bash("is_ready run", checkout).returncode != 0


def _dpkg(folder: Path, *installed: str) -> str:
    """A PATH on which exactly these packages are installed, and nobody can become root."""
    folder.mkdir()
    said = "".join(f"installed:{name} " for name in installed)
    (folder / "dpkg-query").write_text(f"#!/bin/sh\nprintf '%s' '{said}'\n")
    (folder / "dpkg-query").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def _node(folder: Path) -> None:
    """Its commands, from somebody else than Debian."""
    for name in ("node", "npm"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_missing_system_packages_are_named(tmp_path: Path) -> None:
    """Exactly those that dpkg does not call installed."""
    wanted = _bash("wanted_packages").stdout.split()
    assert {"python3-venv", "cmake", "libsdl2-gfx-dev", "libgl1-mesa-dri"} <= set(wanted)
    lacking = {"cmake", "g++"}
    path = _dpkg(tmp_path / "bin", *(name for name in wanted if name not in lacking))
    assert set(_bash("missing_packages", PATH=path).stdout.split()) == lacking


def test_what_only_developers_need_is_asked_for_apart(tmp_path: Path) -> None:
    """No run waits for it; a Node that is no package of Debian's counts."""
    wanted = set(_bash("wanted_packages").stdout.split())
    developers = {"libzmq3-dev", "libmsgpack-cxx-dev", "nodejs", "npm", "iproute2", "chromium"}
    assert developers.isdisjoint(wanted)
    path = _dpkg(tmp_path / "bin", "g++", "cmake", "libzmq3-dev", "iproute2")
    without = _bash("type() { return 1; }; missing_packages dev", PATH=path).stdout
    assert without.split() == ["libmsgpack-cxx-dev", "nodejs", "npm"]
    _node(tmp_path / "bin")
    assert _bash("missing_packages dev", PATH=path).stdout.split() == ["libmsgpack-cxx-dev"]


def test_a_browser_stops_nothing_and_nobody(checkout: Path, tmp_path: Path) -> None:
    """It is a package by itself: where it cannot be had, that is said once, and what the clients
    need is there; one from somebody else than Debian counts."""
    code = (
        "level=dev; again=; gain_root() { return 0; }; as_root=(); "
        'do_system() { [[ $* != *chromium* ]]; }; mkdir -p "$logs"; '
        "toolchains_step; browser_step; echo went on"
    )
    path = _dpkg(tmp_path / "bin", "g++", "cmake", "libzmq3-dev")
    _node(tmp_path / "bin")
    without = 'type() { [[ $2 != chromium ]] && builtin type "$@"; }; '
    first = _bash(without + code, checkout, PATH=path)
    assert "[6/8] packages for clients in C++ and JavaScript ... 0." in first.stderr
    assert "[7/8] a browser for the tests of pages ... failed" in first.stderr
    assert first.stderr.count("look at pages in a browser are left out") == 1
    second = _bash(without + "missing_packages browser; " + code, checkout, PATH=path)
    assert second.stdout == "chromium went on\n"
    assert "browser" not in second.stderr
    (tmp_path / "bin" / "chromium").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "chromium").chmod(0o755)
    assert _bash("missing_packages browser", PATH=path).stdout == ""


def test_clients_in_other_languages_stop_nothing(checkout: Path, tmp_path: Path) -> None:
    """Without root and without modules set-up goes on, says it once, and is quiet from then on."""
    code = (
        "level=dev; again=; do_modules() { return 1; }; gain_root() { return 1; }; "
        'mkdir -p "$logs"; toolchains_step; modules_step; echo went on'
    )
    path = _dpkg(tmp_path / "bin")
    _node(tmp_path / "bin")
    first = _bash(code, checkout, PATH=path)
    lacking = "g++ cmake libzmq3-dev libmsgpack-cxx-dev iproute2"
    assert f"--no-install-recommends {lacking}\n" in first.stderr
    assert "[8/8] modules for the client in JavaScript ... failed" in first.stderr
    assert first.stderr.endswith(f"    {checkout}/tools/setup.sh dev\n")
    second = _bash(code, checkout, PATH=path)
    assert (first.stdout, second.stdout, second.stderr) == ("went on\n", "went on\n", "")


def test_football_is_tried_again_once_its_packages_are_there(
    checkout: Path, tmp_path: Path
) -> None:
    """While they are missing the quiet path stays quiet; the use after they came is set-up's."""
    (checkout / ".venv" / ".setup" / "football-waits").write_text("cmake")
    wanted = _bash("wanted_packages").stdout.split()
    without = _dpkg(tmp_path / "without")
    complete = _dpkg(tmp_path / "complete", *wanted)
    assert _bash("is_ready run", checkout, PATH=without).returncode == 0
    assert _bash("is_ready run", checkout, PATH=complete).returncode != 0


def test_without_root_the_line_for_root_is_said_once(checkout: Path) -> None:
    """It names what is missing; a second set-up does not repeat it, an explicit one does."""
    step = "again=; refused=; lacking='cmake g++ '; football_step"
    first = _bash(step, checkout).stderr
    assert "    apt-get update && apt-get install -y --no-install-recommends cmake g++" in first
    assert _bash(step, checkout).stderr == ""
    assert "apt-get install" in _bash(step.replace("again=", "again=again"), checkout).stderr


def test_a_refused_installation_shows_why_and_what_to_do(checkout: Path, tmp_path: Path) -> None:
    """The end of its log, where the rest is, and the one command; only football waits."""
    path = _dpkg(tmp_path / "bin")
    code = (
        "gain_root() { as_root=(); }; do_system() { seq 100; return 1; }; level=run; again=; "
        'refused=; mkdir -p "$logs"; system_step; football_step && echo went on'
    )
    result = _bash(code, checkout, PATH=path)
    shown = result.stderr.splitlines()
    assert shown[0].startswith("[1/4] system packages ... failed after ")
    assert shown[0].endswith(f"The end of {checkout}/.cache/setup/system.log:")
    assert shown[1:16] == [f"    {number}" for number in range(86, 101)]
    assert shown[-1] == f"    {checkout}/tools/setup.sh"
    assert "needs root" not in result.stderr
    assert result.stdout == "went on\n"


def _heed_ctrl_c() -> None:
    """Whoever starts the tests in the background has them ignore it, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_interruption_ends_the_whole_step(checkout: Path) -> None:
    """Within seconds, with exit code 130, a sentence, and no process left behind."""
    code = (
        "slow() { echo $BASHPID; sleep 60 | sleep 60; }; export -f slow; "
        "all_steps() { level=run; run_step venv work slow; }; ensure run again"
    )
    command = ["bash", "-uc", f'source "{checkout}/tools/setup.sh"; {code}']
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_ctrl_c)
    log = checkout / ".cache" / "setup" / "venv.log"
    since = time.monotonic()
    while not (log.is_file() and log.read_text().endswith("\n")):
        assert time.monotonic() < since + 30
    group = int(log.read_text())
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert "Interrupted in [2/4] work. The same command goes on from there." in shown
    while _is_alive(group):  # until the dead are buried
        assert time.monotonic() < since + 60


def test_without_python_the_tools_stop_with_the_line_for_root(checkout: Path) -> None:
    """Without an interpreter nothing works, so that is an error and not a skipped family."""
    code = "usable_python='import nowhere'; find_python || explain_python"
    result = _bash(code, checkout, PATH=_dpkg(checkout / "bin"))
    assert result.returncode == 1
    assert "apt-get install -y --no-install-recommends python3 python3-venv" in result.stderr


def test_other_systems_are_told_what_is_needed(checkout: Path) -> None:
    """Where there is no apt, the list is all that can be given."""
    result = _bash("has_apt() { return 1; }; explain_system", checkout)
    assert "This is no Debian" in result.stderr
    assert "libboost-python-dev" in result.stderr


def _machine(root: Path, available: int, files: dict[str, str] | None = None) -> Path:
    """The parts of /proc and /sys that bound a build; `available` in bytes."""
    group = "4:memory:/outer/inner\n0::/outer/inner\n"
    parts = {"proc/meminfo": f"MemAvailable: {available >> 10} kB\n", "proc/self/cgroup": group}
    for name, text in {**parts, **(files or {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _jobs(machine: Path) -> int:
    """How many compilers run at once on this machine, were it one of eight cores."""
    return int(_bash(f'source "$root/tools/football.sh"; build_jobs "{machine}" 8').stdout)


@pytest.mark.parametrize(
    ("available", "files", "jobs"),
    [
        (64 * GIB, {}, 8),
        (4 * GIB, {}, 5),
        (1 * GIB, {}, 1),
        (GIB // 4, {}, 1),
        (64 * GIB, {"memory.max": "max\n", "cpu.max": "max 100000\n"}, 8),
        (64 * GIB, {"memory.max": f"{2 * GIB}\n", "memory.current": f"{GIB // 8}\n"}, 2),
        (64 * GIB, {"outer/memory.max": f"{4 * GIB}\n", "outer/memory.current": "0\n"}, 5),
        (64 * GIB, {"outer/inner/cpu.max": "250000 100000\n"}, 3),
        (64 * GIB, {"memory/outer/memory.limit_in_bytes": f"{4 * GIB}\n"}, 5),
        (64 * GIB, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8),
        (64 * GIB, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        (64 * GIB, {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_a_build_fits_memory_and_cores(
    tmp_path: Path, available: int, files: dict[str, str], jobs: int
) -> None:
    """Eight cores are used as far as memory, control groups and quotas allow, but always one."""
    groups = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    root = _machine(tmp_path, available, groups)
    assert _jobs(root) == jobs


def test_cached_files_count_as_free_memory(tmp_path: Path) -> None:
    """What a control group merely caches can be used by a build."""
    group = "sys/fs/cgroup/"
    used = {f"{group}memory.max": str(4 * GIB), f"{group}memory.current": str(4 * GIB)}
    assert _jobs(_machine(tmp_path / "a", 64 * GIB, used)) == 1
    used[f"{group}memory.stat"] = f"anon 1\ninactive_file {4 * GIB}\n"
    assert _jobs(_machine(tmp_path / "b", 64 * GIB, used)) == 5


def _extras(*names: str) -> set[str]:
    """What setup.py asks for, without versions."""
    code = (
        "import runpy; print(*(n for k in {0!r} for n in runpy.run_path('setup.py')['EXTRAS'][k]))"
    )
    code = "import setuptools; setuptools.setup = lambda **kw: None; " + code.format(names)
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    return {re.split("[=<>]", need)[0] for need in output.stdout.split()}


def test_football_gets_all_it_needs_but_its_windows() -> None:
    """Set-up installs the engine apart, and beside it exactly what setup.py lists for it."""
    installed = _bash('printf "%s " "${football_needs[@]}"').stdout.split()
    assert {*installed, "gfootball"} == _extras("football")


def test_everything_is_pinned_once() -> None:
    """Each line of the constraints fixes one package, and all that setup.py names are there."""
    lines = (ROOT / "tools" / "constraints.txt").read_text().splitlines()
    pins = [line.partition("==")[0].lower() for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines if line[0] != "#")
    assert len(pins) == len(set(pins))
    wanted = _extras("football", "atari", "mujoco", "envpool") | {"torch", "pip", "setuptools"}
    assert {name.lower() for name in wanted} <= set(pins)


@pytest.mark.parametrize("script", BASH, ids=lambda path: path.name)
def test_a_script_can_be_run_and_parsed(script: Path) -> None:
    """Every tool is executable and free of syntax errors."""
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", script]).returncode == 0
