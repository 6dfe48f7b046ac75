"""A clock that somebody sets, or that jumps, is nothing to a run.

Durations and limits are measured with clocks that only go forward. The date is only ever made into
text: it names a run's directory, and stands in its manifest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import Source, library, plant

JUMPING = {"time", "time_ns", "clock_gettime", "localtime", "gmtime", "ctime", "strftime"}
"""What the module `time` knows of the date."""
FORWARD = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep"}
"""What may be taken out of it by name."""
DATES = {"now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp"}
TEXTS = {"isoformat", "strftime"}


def jumping(sources: list[Source]) -> Iterator[str]:
    """Every look at a clock that can be set, but for dates that become text at once."""
    for source in sources:
        told = {
            id(node.value.func)
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Attribute) and node.attr in TEXTS
            if isinstance(node.value, ast.Call)
        }
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                named = {alias.name for alias in node.names} - FORWARD
                yield from (f"{source.where(node.lineno)} imports {name}" for name in sorted(named))
            elif isinstance(node, ast.Attribute):
                module = isinstance(node.value, ast.Name) and node.value.id == "time"
                date = node.attr in DATES and id(node) not in told
                if (module and node.attr in JUMPING) or date:
                    yield f"{source.where(node.lineno)} reads {node.attr}"


def test_only_clocks_that_go_forward_measure() -> None:
    """In the whole library."""
    assert list(jumping(library())) == []


def test_the_date_is_found_where_it_is_told() -> None:
    """The rule sees what it is about: a run's directory and its manifest are dated."""
    found = [source.module for source in library() if "datetime.now()" in source.text]
    assert found == ["hts.report.run_directory"]


@pytest.mark.parametrize(
    "text",
    [
        "import time\nbegan = time.time()",
        "import time\nbegan = time.time_ns()",
        "import time\nbegan = time.clock_gettime(time.CLOCK_REALTIME)",
        "from time import time",
        "from time import monotonic, time as clock",
        "from datetime import datetime\nbegan = datetime.now()",
        "import datetime\nseconds = (datetime.datetime.now() - begin).total_seconds()",
        "from datetime import date\ntext = f'{date.today()}'",
    ],
)
def test_a_planted_clock_is_caught(tmp_path: Path, text: str) -> None:
    """However it is read or imported."""
    assert len(list(jumping(plant(tmp_path, {"hts/planted.py": text})))) == 1


def test_a_date_as_text_is_free(tmp_path: Path) -> None:
    """And so are the clocks that go forward."""
    text = (
        "import time\nfrom datetime import datetime\nfrom time import monotonic\n"
        "name = datetime.now().strftime('%Y')\nsince = time.perf_counter() + monotonic()\n"
    )
    assert list(jumping(plant(tmp_path, {"hts/planted.py": text}))) == []
