"""`tools/mutants`: which changes are made, and that a change is tried as it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.limits import HANG
from tools.mutating import modules
from tools.mutating.allowed import Allowed
from tools.mutating.operators import Mutant, mutants


def changes(text: str) -> set[str]:
    """The statements that mutations of a text make."""
    return {mutant.after for mutant in mutants(text)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b", {"x = (a <= b)", "x = (a >= b)"}),
        ("x = a is None", {"x = (a is not None)"}),
        ("x = a + 1", {"x = (a - 1)", "x = a + 2"}),
        ("x = a[-1]", {"x = a[0]"}),
        ("x = a[0]", {"x = a[-1]", "x = a[1]"}),
        ("x = a[1:]", {"x = a[:]", "x = a[0:]", "x = a[2:]"}),
        ("x = -a", {"x = a"}),
        ("x = not a", {"x = a"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = True", {"x = False"}),
        ("x = 0.5", {"x = 1.0"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("x = a.clip(b)", {"x = b"}),
        ("x = a.copy()", {"x = a"}),
        ("x = a.any(axis=b)", {"x = a.all(axis=b)", "x = a.any()"}),
        ("f(a)", {"pass"}),
        ("x += a", {"x -= a", "pass"}),
        ("if a:\n    raise E", {"if (not a):", "pass"}),
        ("def f(a):\n    return g(a)", {"return a"}),
        ("def f(a=1):\n    a.b = a", {"def f(a=2):", "pass"}),
    ],
)
def test_every_kind_of_change_is_made(text: str, expected: set[str]) -> None:
    """Each by the text of its statement."""
    assert changes(text) == expected


def test_texts_for_people_are_left_alone() -> None:
    """Docstrings, annotations, assertions, messages, decorators, and `zip(strict=True)`."""
    text = '''
"""One."""
import x
@x.y(1)
def f(a: x[1]) -> x[2]:
    """Two."""
    assert a == 3
    if a:
        raise E(f"{a + 1}")
    b = zip(a, strict=True)
    return f"{a + 1}"
'''
    assert changes(text) == {"if (not a):", "pass"}


PRODUCT = '''
"""A product."""
def larger(a, b, *, strictly=False):
    if strictly and a == b:
        raise ValueError
    return max(a, b)
def count(n):
    found = 0
    while found < n:
        found += 1
    return found
def unseen(n):
    return n + 1
'''
TESTS_OF_PRODUCT = """
import product
def test_larger():
    assert product.larger(1, 2) == 2
    assert product.larger(2, 2) == 2
def test_count():
    assert product.count(3) == 3
"""
CAMPAIGN = """
import sys
from pathlib import Path
from mutating.campaign import Choice, calm, results, tree
choice, table = Choice(), {"product.py": ("tests/test_product.py",)}
with tree(Path(sys.argv[1])) as copy:
    calm()
    for result in results(copy, choice.of(list(table), copy), choice, table):
        print(result.survived, result.tests, result.mutant.before, "->", result.mutant.after)
"""


def test_a_change_survives_when_every_test_that_runs_it_passes(tmp_path: Path) -> None:
    """In functions, in a default that is read on import, in a loop that never ends, and in a line
    that no test runs; and the original stays as it is."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "product.py").write_text(PRODUCT)
    (tmp_path / "tests" / "test_product.py").write_text(TESTS_OF_PRODUCT)
    ended = subprocess.run(
        [sys.executable, "-c", CAMPAIGN, str(tmp_path)],
        env={"PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert ended.returncode == 0, ended.stderr
    assert set(ended.stdout.splitlines()) == {
        "False 2 def larger(a, b, *, strictly=False): -> def larger(a, b, *, strictly=True):",
        "False 1 if strictly and a == b: -> if (strictly or a == b):",
        "False 1 if strictly and a == b: -> if (not (strictly and a == b)):",
        "True 1 if strictly and a == b: -> if strictly and (a != b):",
        "True 0 raise ValueError -> pass",
        "False 1 return max(a, b) -> return min(a, b)",
        "False 1 return max(a, b) -> return a",
        "True 1 found = 0 -> found = 1",
        "False 1 while found < n: -> while (found <= n):",
        "False 1 while found < n: -> while (found >= n):",
        "False 1 found += 1 -> found -= 1",
        "False 1 found += 1 -> found += 2",
        "False 1 found += 1 -> pass",
        "True 0 return n + 1 -> return (n - 1)",
        "True 0 return n + 1 -> return n + 2",
    }
    assert (tmp_path / "product.py").read_text() == PRODUCT


def test_a_reason_belongs_to_a_text_and_not_to_a_line(tmp_path: Path) -> None:
    """An entry covers its change wherever it stands, and is stale when no change is that."""
    path = tmp_path / "allowed.txt"
    path.write_text("# a list\n\na.py\n- x = 1\n+ x = 2\nnever read\n\nb.py\n- y\n+ z\ngone\n")
    allowed = Allowed.read(path)
    change = Mutant(7, 7, "x = 1", "x = 2", "", "")
    assert allowed.covers("a.py", change)
    assert not allowed.covers("c.py", change)
    assert allowed.stale(["a.py", "b.py"]) == [("b.py", "y", "z")]
    path.write_text("a.py\n- x = 1\nno plus\n")
    with pytest.raises(ValueError, match="block 1"):
        Allowed.read(path)


def test_the_table_names_what_is_there() -> None:
    """Every module and at least one of its tests; folders mean their modules."""
    table = modules.TESTS
    assert all((ROOT / module).is_file() for module in table)
    assert [module for module in table if not modules.tests_of(module, ROOT, table)] == []
    assert modules.named(["hts/replay/"]) == [m for m in table if m.startswith("hts/replay/")]
    with pytest.raises(LookupError, match="no tests are listed for hts/cli"):
        modules.named(["hts/cli"])
