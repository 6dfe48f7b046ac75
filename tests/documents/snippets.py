"""The commands and files that a page shows, as its reader would type and save them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_COMMAND = re.compile(r"(?:tools/|hts-)[a-z]")
_FILE = re.compile(r"# ([\w-]+\.\w+)\n")
_PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b|<\w+>")


@dataclass(frozen=True)
class Command:
    """One command line of a page; `partners` are typed in other terminals while it runs."""

    line: int
    words: tuple[str, ...]
    partners: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        return shlex.join(self.words)


def files(page: str) -> dict[str, str]:
    """Return the files that a page shows: blocks whose first line is `# NAME`."""
    shown = {}
    for _, block in _blocks(page):
        named = _FILE.match(block)
        if named:
            shown[named[1]] = block
    return shown


def commands(page: str) -> list[Command]:
    """Return the commands in blocks and, where they are whole, between back quotes.

    Commands after one with `--listen` in the same block run beside it.
    """
    found = []
    for line, block in _blocks(page):
        typed = [
            (line + offset, words)
            for offset, text in enumerate(block.splitlines())
            if _COMMAND.match(text) and (words := tuple(shlex.split(text, comments=True)))
        ]
        if typed and "--listen" in typed[0][1]:
            partners = tuple(words for _, words in typed[1:])
            found.append(Command(*typed[0], partners))
        else:
            found += [Command(*each) for each in typed]
    return sorted([*found, *_inline(page)], key=lambda command: command.line)


def _inline(page: str) -> list[Command]:
    """Return the whole commands between back quotes: those that start with `tools/`."""
    return [
        Command(number, tuple(shlex.split(text)))
        for number, line in enumerate(page.splitlines(), 1)
        for text in re.findall(r"`(tools/[^`\s]+ [^`]+)`", line)
        if not line.startswith("    ") and not _PLACEHOLDER.search(text)
    ]


def _blocks(page: str) -> list[tuple[int, str]]:
    """Return the indented and fenced blocks of code, with the number of their first line."""
    blocks: list[tuple[int, list[str]]] = []
    fenced, inside = False, False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
            inside = False
            if fenced:
                blocks.append((number + 1, []))
        elif fenced:
            blocks[-1][1].append(line)
        elif line.startswith("    "):
            if not inside:
                blocks.append((number, []))
            blocks[-1][1].append(line[4:])
            inside = True
        elif not line and inside:
            blocks[-1][1].append("")
        else:
            inside = False
    return [(number, "\n".join(lines).rstrip() + "\n") for number, lines in blocks]


def read(path: Path) -> str:
    """Return the text of a page."""
    return path.read_text(encoding="utf-8")
