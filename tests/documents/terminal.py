"""A reader's terminal: types commands in a fresh folder and watches what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.documents.snippets import Command

ROOT = Path(__file__).parents[2]
TO_END = 20.0
"""Seconds that Ctrl-C may take: it is three on a quiet machine, and tests share theirs."""


class Terminal:
    """A folder with the files of a page, and `tools` as in a checkout."""

    def __init__(self, folder: Path, files: Mapping[str, str], seconds: float) -> None:
        self.folder = folder
        self._until = time.monotonic() + seconds
        self._running: list[subprocess.Popen[bytes]] = []
        (folder / "tools").symlink_to(ROOT / "tools")
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")

    def follow(self, command: Command) -> None:
        """Run a command as its reader would: training is ended after its first update."""
        program = Path(command.words[0]).name
        main = self._start(command.words, "main")
        for place, words in enumerate(command.partners):
            self._start(words, f"partner {place}")
        if program == "hts-train" and "--show-config" not in command.words:
            self._wait(main, self._has_learnt)
            self._interrupt(main)
        elif self._wait(main, lambda: self._rows(program)):
            self._interrupt(main)
        for partner in self._running:  # a simulator waits for the next run
            if partner.poll() is None:
                os.killpg(partner.pid, signal.SIGINT)
            partner.wait(TO_END)

    def close(self) -> None:
        """End what is left."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def said(self) -> str:
        """Return everything that was printed."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')}"
            for path in sorted(self.folder.glob("*.printed"))
        )

    def _start(self, words: tuple[str, ...], name: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.printed", "wb") as printed:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._running.append(process)
        return process

    def _wait(self, process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> bool:
        """Return True once this is reached, False when the command has ended well before it."""
        while True:
            try:
                code = process.wait(0.2)
            except subprocess.TimeoutExpired:
                if reached():
                    return True
                assert time.monotonic() < self._until, f"not there in time\n{self.said()}"
                continue
            assert code == 0, f"exit code {code}\n{self.said()}"
            return False

    def _has_learnt(self) -> bool:
        """A run in this folder has recorded its first update."""
        return any(path.stat().st_size for path in self.folder.glob("runs/**/digests.jsonl"))

    def _rows(self, program: str) -> bool:
        """A command that takes minutes has printed its first result."""
        enough = _LONG.get(program)
        return enough is not None and enough in self.said()

    def _interrupt(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        code = process.wait(TO_END)
        assert code in (0, 130), f"exit code {code} after Ctrl-C\n{self.said()}"


_LONG = {
    "hts-verify": " same",
    "chaos": "round",
    "hts-bench": "steps/s",
    "reproduce": "digest",
}
"""Commands that may take minutes, and the word that their first result contains."""
