"""`hts-report`: a run as one page that can be sent to somebody."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hts.cli import shell
from hts.errors import WrongUsage
from hts.report.page import page
from hts.report.recorded import read

DESCRIPTION = """\
Write one HTML file that shows a run: its experiment, curves, evaluation, time,
what happened, its digest and the command that runs it again. The file needs
nothing else: no network, no scripts. A run that is still going on is shown as
far as it has come.
"""

EPILOG = """\
examples:
  hts-report runs/ppo-gym-CartPole-v1-s0-20260101-120000
  hts-report RUN --out /tmp/run.html

exit code: 0 done, 2 wrong usage
"""


def parser() -> argparse.ArgumentParser:
    """A run, and where its page goes."""
    made = shell.Parser(
        prog="hts-report",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("run", metavar="RUN", type=Path, help="directory of a run")
    made.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (report.html in the directory)"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-report", lambda: _report(typed))


def _report(typed: argparse.Namespace) -> int:
    run = read(typed.run)
    manifest = json.loads((run.path / "manifest.json").read_text(encoding="utf-8"))
    out: Path = typed.out or run.path / "report.html"
    beside = out.with_name(f".{out.name}")
    text = page(run, manifest)
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise WrongUsage(
            f"--out {out} cannot be written: {error.strerror}; name another file"
        ) from None
    print(f"{out}: {len(text) / 1e3:,.0f} kB")
    return shell.DONE


if __name__ == "__main__":
    sys.exit(main())
