"""Files of lines that a run adds to while a checkpoint's thread brings them to the disk."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from hts.errors import WrongUsage
from hts.report.lines import Lines, cut


def test_no_line_is_written_twice(tmp_path: Path) -> None:
    """While a write is going on (here into a pipe that is full), another thread comes along, as the
    thread of a checkpoint does: it waits, and writes nothing of it again."""
    path, long = tmp_path / "pipe", "x" * 100_000 + "\n"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    made = Lines(path)
    threads = [threading.Thread(target=made.add, args=(line,)) for line in (long, "other\n")]
    for thread in threads:
        thread.start()
        while not asleep(thread):
            assert thread.is_alive()
    os.set_blocking(reader, True)
    with open(reader, "rb") as file:
        read = file.read(len(long) + len("other\n"))
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads), "they write more than that"
        made.close()
        assert file.read() == b""
    assert read.decode() == long + "other\n"


def asleep(thread: threading.Thread) -> bool:
    """It waits for something."""
    state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return state.rpartition(")")[2].split()[0] == "S"


def test_what_a_full_disk_does_not_take_waits(tmp_path: Path) -> None:
    """Half a line is written, the rest of it and the next ones when there is room; whoever needs
    them on the disk is told that they are not."""
    path = tmp_path / "lines"
    made = Lines(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        made.add("seven!\n")
        assert made.trouble is None
        made.add("eight!!\n")
        made.add("nine!!!!\n")
        assert made.trouble == f"{path} takes no more lines ({os.strerror(errno.EFBIG)})"
        with pytest.raises(OSError, match="takes no more lines"):
            made.sync()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, heard)
    assert path.read_text() == "seven!\neig"
    made.sync()
    assert made.trouble is None
    made.close()
    assert path.read_text() == "seven!\neight!!\nnine!!!!\n"


def test_a_record_is_cut_to_where_it_goes_on(tmp_path: Path) -> None:
    """Whole lines that were taken back are returned, half a line is forgotten; too few are told."""
    path = tmp_path / "lines"
    path.write_text("1\n2\n3\n4\nha")
    assert cut(path, 2) == ["3\n", "4\n"]
    assert path.read_text() == "1\n2\n"
    with pytest.raises(WrongUsage, match=r"it holds 2 updates, and 3 are needed"):
        cut(path, 3)
    assert path.read_text() == "1\n2\n"
