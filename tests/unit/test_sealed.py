"""Checked files: every kind of damage is found and named, and equal content is equal bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from hts.report.sealed import Damaged, Sealed, seal, sweep, unseal
from hts_envs.contract import Array

HELD = Sealed({"update": 3}, {"a": np.arange(6, dtype=np.int32), "b": np.zeros((2, 3))})


def parts(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays and the metadata of a file."""
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def forge(path: Path, change: Callable[[dict[str, Array]], None]) -> None:
    """Write other arrays under the original head."""
    arrays, metadata = parts(path)
    change(arrays)
    save_file(arrays, path, metadata)


def test_a_file_holds_what_was_written(tmp_path: Path) -> None:
    """Facts, names, dtypes, shapes and values; no temporary file is left."""
    seal(tmp_path / "kept", "case", HELD)
    again = unseal(tmp_path / "kept", "case")
    assert again.facts == HELD.facts
    assert list(tmp_path.iterdir()) == [tmp_path / "kept"]
    for name, array in HELD.arrays.items():
        assert again.arrays[name].dtype == array.dtype
        assert np.array_equal(again.arrays[name], array)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda arrays: arrays.pop("b"), "does not hold the parts that its head names"),
        (lambda arrays: arrays.update(c=np.ones(1)), "does not hold the parts that its head names"),
        (lambda arrays: arrays.update(a=arrays["a"] + 1), "a is not what was written"),
        (lambda arrays: arrays.update(a=arrays["a"].view(np.uint32)), "a is not what was written"),
        (lambda arrays: arrays.update(b=arrays["b"].reshape(3, 2)), "b is not what was written"),
    ],
    ids=["missing", "additional", "value", "dtype", "shape"],
)
def test_a_changed_part_is_damage(
    tmp_path: Path, change: Callable[[dict[str, Array]], None], problem: str
) -> None:
    """Missing and additional parts; equal bytes of another dtype or shape are damage too."""
    path = tmp_path / "kept"
    seal(path, "case", HELD)
    forge(path, change)
    with pytest.raises(Damaged, match=problem):
        unseal(path, "case")


def test_truncated_files_are_damaged(tmp_path: Path) -> None:
    """A file cut in its head or its arrays is refused, an empty one included."""
    path = tmp_path / "kept"
    seal(path, "case", HELD)
    content = path.read_bytes()
    for size in (0, 7, 8, 9, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(Damaged):
            unseal(path, "case")


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new content is complete on the disk before it takes the place of the old one."""
    path = tmp_path / "kept"
    seal(path, "case", HELD)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        seal(path, "case", Sealed({"update": 4}, HELD.arrays))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path], "the half-written file is removed"


def test_half_written_files_are_swept_and_no_others(tmp_path: Path) -> None:
    """A process that was killed while writing leaves a hidden file."""
    for name in (".half.safetensors", "whole.safetensors", ".other"):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".other", "whole.safetensors"]


def test_equal_content_is_equal_bytes(tmp_path: Path) -> None:
    """The library orders its metadata by a random hash, so one of eight writes would differ."""
    for number in range(8):
        seal(tmp_path / str(number), "case", HELD)
    assert len({(tmp_path / str(number)).read_bytes() for number in range(8)}) == 1
    head = (tmp_path / "0").read_bytes()[8:]
    names = list(json.JSONDecoder().raw_decode(head.decode("latin-1"))[0]["__metadata__"])
    assert names == sorted(names)
    start = 8 + int.from_bytes((tmp_path / "0").read_bytes()[:8], "little")
    assert start % 8 == 0, "arrays are aligned"


def test_another_kind_and_a_strange_file_are_refused(tmp_path: Path) -> None:
    """A policy is no case; a file of another program has no head; a missing file is named."""
    seal(tmp_path / "policy", "policy", HELD)
    with pytest.raises(Damaged, match="it is a policy of format 1, not a case of format 1"):
        unseal(tmp_path / "policy", "case")
    save_file({"a": np.ones(2)}, tmp_path / "strange")
    with pytest.raises(Damaged, match="not written by this product"):
        unseal(tmp_path / "strange", "case")
    with pytest.raises(Damaged, match="there is no such file"):
        unseal(tmp_path / "none", "case")


def test_a_changed_head_is_damage(tmp_path: Path) -> None:
    """Facts are covered by a hash of their own."""
    seal(tmp_path / "kept", "case", HELD)
    arrays, metadata = parts(tmp_path / "kept")
    metadata["hts"] = metadata["hts"].replace('"update": 3', '"update": 4')
    save_file(arrays, tmp_path / "kept", metadata)
    with pytest.raises(Damaged, match="its head is not what was written"):
        unseal(tmp_path / "kept", "case")
