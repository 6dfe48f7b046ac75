"""What is built is what is used: wheel, source distribution and editable install, from a copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.house.sources import PACKAGES, ROOT

PARTS = ("hts", "envs", "configs", "setup.py", "README.md")
FACTS = """
import importlib.metadata as metadata, json
from importlib.resources import files
import hts, hts_configs, hts_envs
distribution = metadata.distribution("hts")
print(json.dumps({
    "places": {p.__name__: p.__path__[0] for p in (hts, hts_envs, hts_configs)},
    "typed": [p.__name__ for p in (hts, hts_envs) if files(p).joinpath("py.typed").is_file()],
    "configs": sorted(f.name for f in files(hts_configs).iterdir() if f.name.endswith(".yaml")),
    "commands": {e.name: callable(e.load()) for e in distribution.entry_points},
    "extras": sorted(distribution.metadata.get_all("Provides-Extra")),
}))
"""


def _run(*command: str | Path, folder: Path) -> str:
    """Its output; on failure the whole of it is in the error."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_CORE"))}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _build(kind: str, source: Path, target: Path) -> Path:
    """A wheel or sdist of the project in `source`, offline and with the setuptools installed."""
    code = (
        "import sys; from setuptools import build_meta; "
        f"print('built', build_meta.build_{kind}(sys.argv[1]))"
    )
    target.mkdir(exist_ok=True)
    output = _run(sys.executable, "-W", "ignore", "-c", code, target, folder=source)
    return target / output.split()[-1]


def _installed(requirement: tuple[str | Path, ...], folder: Path) -> Path:
    """The interpreter of a new virtual environment that holds the project.

    What the project needs is found, after everything of its own, where the tests find it; a line
    in a .pth file adds that folder without what is installed editable there.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    (_site_packages(python) / "needed.pth").write_text(sysconfig.get_path("purelib"))
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed")
    _run(*pip, "install", *options, *requirement, folder=folder)
    return python


def _site_packages(python: Path) -> Path:
    (found,) = python.parent.parent.glob("lib/python3*/site-packages")
    return found


def _facts(python: Path) -> dict[str, Any]:
    """What the installed packages say about themselves."""
    output = _run(python, "-W", "ignore", "-c", FACTS, folder=python.parent)
    return dict(json.loads(output.splitlines()[-1]))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, so that building leaves nothing behind in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, copy / part)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build("wheel", source, tmp_path_factory.mktemp("wheel"))


def _expected_files(source: Path) -> set[str]:
    kinds = {".py", ".yaml", ".md", ".typed", ".cpp", ".hpp", ".mjs", ".json"}
    return {
        f"{package}/{path.relative_to(source / folder)}"
        for package, folder in PACKAGES.items()
        for path in (source / folder).rglob("*")
        if path.suffix in kinds or path.name in ("py.typed", "CMakeLists.txt")
        if "node_modules" not in path.parts
    }


def _packaged_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_every_file_and_no_other(source: Path, wheel: Path) -> None:
    """Code, configurations, design notes and typing markers arrive; nothing else does."""
    assert _packaged_files(wheel) == _expected_files(source)


def test_the_sdist_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    """A wheel built from the unpacked source distribution has the same files."""
    archive = _build("sdist", source, tmp_path / "sdist")
    _run("tar", "-xzf", archive, folder=tmp_path)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    again = _build("wheel", unpacked, tmp_path / "again")
    assert _packaged_files(again) == _packaged_files(wheel)


@pytest.mark.parametrize("editable", [False, True])
def test_an_install_is_complete(source: Path, wheel: Path, tmp_path: Path, editable: bool) -> None:
    """All packages, configurations, markers, extras and commands work from either install."""
    requirement = ("--editable", source) if editable else (wheel,)
    python = _installed(requirement, tmp_path / "installed")
    facts = _facts(python)
    folders = {
        package: str(source / folder if editable else _site_packages(python) / package)
        for package, folder in PACKAGES.items()
    }
    assert facts["places"] == folders
    assert facts["typed"] == ["hts", "hts_envs"]
    assert facts["configs"] == sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))
    assert {"football", "atari", "mujoco", "all", "dev"} <= set(facts["extras"])
    commands = dict(facts["commands"])
    assert {"hts-train", "hts-check", "hts-doctor"} <= set(commands)
    assert all(commands.values())
    assert all((python.parent / command).is_file() for command in commands)


def test_a_core_install_needs_no_compiler(wheel: Path) -> None:
    """The wheel is pure Python, and the compiled simulators are asked for by extras alone."""
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    needs = [line.split(": ", 1)[1] for line in lines if line.startswith("Requires-Dist: ")]
    core = {need.split(">")[0] for need in needs if "extra ==" not in need}
    assert core
    assert core.isdisjoint({"gfootball", "ale-py", "mujoco", "envpool"})
