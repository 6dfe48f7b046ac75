"""Names of environments, and what a mistyped one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hts_envs import FAMILIES, family, parse
from hts_envs.errors import BadName, BadOption, MissingPackages, install_command
from hts_envs.options import describe
from hts_envs.registry import Family, require
from tests.limits import HANG


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_describes_itself(name: str) -> None:
    """A summary, and for each name an options record whose every option says what it does."""
    found = family(name)
    assert found.summary
    for environment in [*found.names()][:3]:
        full = found.resolve(environment)
        assert found.resolve(full) == full
        assert all(option.text for option in describe(found.options(full)))


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("gfotball:3v1", "there is no environment family 'gfotball' (did you mean 'gfootball'?)"),
        ("gfootball:3v2", "3v1"),
        ("3v1", "did you mean 'gfootball:"),
        ("Breakout", "did you mean 'atari:Breakout'"),
        ("nonsense", "write family:name"),
        ("atari:Brekout", "did you mean 'Breakout'"),
        ("batched:pendulm", "did you mean 'pendulum'"),
    ],
)
def test_a_mistyped_name_is_told_the_nearest_right_one(typed: str, sentence: str) -> None:
    """Family, environment, or a name without its family."""
    with pytest.raises(BadName) as caught:
        parse(typed)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("sleeper:?maen=3", "did you mean 'mean'"),
        ("sleeper:?mean=3&mean=4", "option mean is given twice"),
        ("sleeper:?mean", "?name=value"),
        ("sleeper:?mean=-1", "must be a number from 0, not -1"),
    ],
)
def test_a_mistyped_option_is_told_what_is_wrong(typed: str, sentence: str) -> None:
    """Unknown, doubled, unfinished, out of range."""
    with pytest.raises(BadOption) as caught:
        parse(typed)
    assert sentence in str(caught.value)


def test_canonical_names_spell_out_every_option() -> None:
    """Two spellings of one world share a canonical name; another option does not."""
    assert parse("gfootball:3v1").canonical() == parse("gfootball:3v1?agents=1").canonical()
    assert parse("gfootball:3v1").canonical() != parse("gfootball:3v1?agents=2").canonical()
    assert parse(parse("sleeper:?mean=2").canonical()) == parse("sleeper:?mean=2")


class _Absent(type(family("counting"))):  # type: ignore[misc]
    name = "absent"
    packages = ("a_package_that_nobody_has",)
    extra = "absent"


def test_a_family_without_its_packages_says_how_to_install_them() -> None:
    """The sentence is the command."""
    absent: Family = _Absent()
    with pytest.raises(MissingPackages, match=r"Install it with: tools/setup.sh$"):
        require(absent)


def test_outside_a_checkout_the_command_is_pips(tmp_path: Path) -> None:
    """An installed package has no set-up of its own; in a checkout EnvPool is installed alone."""
    assert install_command("football", tmp_path) == "pip install 'hts[football]'"
    alone = "tools/python -m pip install -c tools/constraints.txt envpool"
    assert install_command("envpool") == alone


def test_names_are_checked_without_importing_a_simulator() -> None:
    """Checking a name must work, and be fast, on a machine without any simulator."""
    script = (
        "import sys, hts_envs;"
        "[hts_envs.parse(n) for n in ('gfootball:3v1', 'atari:Breakout', 'batched:ant')];"
        "heavy = {'torch', 'gfootball', 'gfootball_engine', 'ale_py', 'mujoco', 'cv2', 'gym'};"
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG
    )
    assert result.returncode == 0, result.stderr
