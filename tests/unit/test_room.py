"""How much memory can be had: the machine's own limit, and those of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from hts.memory.room import available, kills

MIB = 2**20
MEMINFO = (
    f"MemTotal: {9000 * 1024} kB\nMemAvailable:    {2000 * 1024} kB\nHugePages_Total:       0\n"
)
NONE = 9223372036854771712  # how the first generation says that there is no limit


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """What the kernel shows of itself."""
    shown = {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup, "proc/vmstat": "oom_kill 11\n"}
    for name, text in (shown | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def second(group: str, limit: str, used: int, cached: int = 0) -> dict[str, str]:
    """A control group of the second generation, in MiB."""
    return {
        f"sys/fs/cgroup/{group}/memory.max": limit,
        f"sys/fs/cgroup/{group}/memory.current": f"{used * MIB}\n",
        f"sys/fs/cgroup/{group}/memory.events": "low 0\noom 4\noom_kill 3\noom_group_kill 0\n",
        f"sys/fs/cgroup/{group}/memory.stat": (
            f"anon 5\nfile 7\ninactive_file {cached * MIB}\nactive_file {MIB}\n"
        ),
    }


def first(group: str, limit: int, used: int, cached: int = 0) -> dict[str, str]:
    """One of the first generation, in MiB."""
    return {
        f"sys/fs/cgroup/memory/{group}/memory.limit_in_bytes": f"{limit}\n",
        f"sys/fs/cgroup/memory/{group}/memory.usage_in_bytes": f"{used * MIB}\n",
        f"sys/fs/cgroup/memory/{group}/memory.oom_control": "under_oom 0\noom_kill 2\n",
        f"sys/fs/cgroup/memory/{group}/memory.stat": (
            f"inactive_file 1\ntotal_inactive_file {cached * MIB}\ntotal_active_file {MIB}\n"
        ),
    }


def test_without_control_groups_it_is_what_the_machine_has(tmp_path: Path) -> None:
    """No group, an unlimited one, and one that cannot be seen from here limit nothing."""
    for number, (cgroup, files) in enumerate(
        (
            ("", {}),
            ("0::/a\n", second("a", "max\n", 700)),
            ("0::/not/here\n", {}),
            ("4:memory:/a\n0::/\n", first("a", NONE, 700)),
            ("7:blkio:/a\n", first("a", 100 * MIB, 70)),
        )
    ):
        found = available(machine(tmp_path / str(number), cgroup, files))
        assert str(found) == "2,000 MiB are free on this machine"
        assert found.size == 2000 * MIB


def test_a_container_s_limit_counts(tmp_path: Path) -> None:
    """What it may still take, with the file pages that the kernel gives back; and which it was."""
    root = machine(tmp_path, "0::/\n", second(".", f"{512 * MIB}\n", 300, cached=99))
    found = available(root)
    assert found.size == (512 - 300 + 99 + 1) * MIB
    limit = f"{root}/sys/fs/cgroup/memory.max"
    assert str(found) == f"312 MiB are free below the limit of 512 MiB in {limit}"


def test_every_group_around_ours_may_be_the_limit(tmp_path: Path) -> None:
    """The job's own group is wide, the user's around it is narrow, another user's is nothing to us;
    a group that is over its limit leaves nothing."""
    files = (
        second("user", f"{800 * MIB}\n", 500)
        | second("user/job", f"{1500 * MIB}\n", 200)
        | second("other", f"{10 * MIB}\n", 5)
    )
    found = available(machine(tmp_path / "one", "0::/user/job\n", files))
    assert (found.size, found.limit[-16:]) == (301 * MIB, "/user/memory.max")
    over = second("user", f"{800 * MIB}\n", 900)
    assert available(machine(tmp_path / "two", "0::/user/job\n", over)).size == 0


def test_a_group_without_a_limit_hides_no_other(tmp_path: Path) -> None:
    """The innermost has none, the one around it has; its name holds a colon, and it does not say
    what the kernel could give back."""
    files = second("user:1/job", "max\n", 200) | second("user:1", f"{800 * MIB}\n", 500)
    del files["sys/fs/cgroup/user:1/memory.stat"]
    found = available(machine(tmp_path, "0::/user:1/job\n", files))
    assert (found.size, found.limit[-18:]) == (300 * MIB, "/user:1/memory.max")


@pytest.mark.parametrize("seen_as", ["docker/7f", "."])
def test_the_first_generation_too(seen_as: str, tmp_path: Path) -> None:
    """By its path; or, in a container that is shown its own group as the outermost one, there."""
    files = first(seen_as, 400 * MIB, 250, cached=20)
    root = machine(tmp_path, "9:name=systemd:/\n4:memory:/docker/7f\n0::/\n", files)
    found = available(root)
    assert found.size == (400 - 250 + 20 + 1) * MIB
    assert found.limit.startswith("below the limit of 400 MiB in ")
    assert found.limit.endswith("memory.limit_in_bytes")


def test_the_kernel_s_kills_are_those_of_our_group(tmp_path: Path) -> None:
    """Of the innermost group that counts them, or else of the machine."""
    assert kills(machine(tmp_path / "a", "0::/\n", {})) == 11
    assert kills(machine(tmp_path / "none", "", {"proc/vmstat": "pgfault 3\n"})) == 0
    assert kills(machine(tmp_path / "b", "0::/job\n", second("job", "max\n", 1))) == 3
    assert kills(machine(tmp_path / "c", "4:memory:/x\n", first("x", NONE, 1))) == 2


def test_this_machine_can_be_asked() -> None:
    """Its real files: some memory is free, and less than all of it."""
    assert 0 < available().size < 2**50
    assert kills() >= 0
