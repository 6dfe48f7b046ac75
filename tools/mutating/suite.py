"""The tests of one module, collected once in a process that forks for each mutant.

A mutant inside a function is tried by giving the function another code, which takes no import. One
that is read on import (a default, a constant, a class's field) needs a process that has not yet
imported the product, so that the tests are collected again: about a second.
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import sys
import time
import types
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import pytest

from .children import fork, wait
from .operators import Mutant

KILLED, SURVIVED, UNPATCHED = 1, 0, 2
SURVEY_SECONDS = 1800.0
IDLE_SECONDS = 20.0
"""Tests that take longer wait for something: they are never fast."""

OPTIONS = ["--noconftest", "-p", "no:cacheprovider", "-x", "--assert=plain", "--tb=native"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported before
"""tests/conftest.py starts a process and looks for what remains of others: too slow here."""


class CannotRun(Exception):
    """The tests of a module end before they can be asked anything."""


class Trial:
    """Runs chosen tests until one fails."""

    def __init__(self, chosen: list[str]) -> None:
        self.chosen = chosen
        self.failed = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = {item.nodeid: item for item in items}
        items[:] = [known[name] for name in self.chosen if name in known]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


class Survey:
    """Notes which lines of a module each test runs, its processor time, and whether it passes."""

    def __init__(self, path: Path) -> None:
        import coverage

        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.late: set[str] = set()
        self._path = str(path)
        self._coverage = coverage.Coverage(
            data_file=None, include=[self._path], config_file=False, check_preimported=False
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        # A fixture may serve all tests of a file: any of them may notice what went wrong in it.
        self._coverage.switch_context(item.nodeid.split("::")[0])
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - began
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self.failed.add(report.nodeid)
        self.late |= {report.nodeid} if report.duration > IDLE_SECONDS else set()

    def run(self, session: pytest.Session) -> dict[str, Any]:
        """Run everything, whatever fails."""
        self._coverage.start()
        run_all(session.items)
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = data.contexts_by_lineno(self._path)
        passed = {
            name: s for name, s in self.seconds.items() if name not in self.failed | self.late
        }
        return {"seconds": passed, "lines": lines}


def run_all(items: list[pytest.Item]) -> None:
    """Run these items, with fixtures torn down as pytest does it."""
    for item, after in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)


class Serving:
    """A collected session that serves its parent: `None` asks for the survey, `False` ends it, and
    anything else is a mutant with its tests and limits."""

    def __init__(self, path: Path, line: Connection) -> None:
        self._path = path
        self._line = line

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.freeze()  # forks share what is here: the collector would write to all of it
        while (asked := self._line.recv()) is not False:
            self._line.send(self._survey(session) if asked is None else self._try(session, *asked))
        return True

    def _survey(self, session: pytest.Session) -> dict[str, Any] | None:
        ours, theirs = Pipe(duplex=False)

        def work() -> int:
            survey = Survey(self._path)
            session.config.pluginmanager.register(survey)
            theirs.send_bytes(json.dumps(survey.run(session)).encode())
            return 0

        pid = fork(work)
        theirs.close()
        found = None
        if ours.poll(SURVEY_SECONDS):
            try:
                found = json.loads(ours.recv_bytes())
            except EOFError:
                found = None
        wait(pid, 0.0 if found is None else SURVEY_SECONDS)
        return found

    def _try(
        self, session: pytest.Session, mutant: Mutant, chosen: list[str], cpu: int, seconds: float
    ) -> int | None:
        def work() -> int:
            if not patch(self._path, mutant):
                return UNPATCHED
            limit_processor(cpu)
            trial = Trial(chosen)
            session.config.pluginmanager.register(trial)
            items = {item.nodeid: item for item in session.items}
            for name, after in zip(chosen, [*chosen[1:], chosen[-1]], strict=True):
                item = items[name]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=items[after])
                if trial.failed:
                    return KILLED
            return SURVIVED

        return wait(fork(work), seconds)


def limit_processor(seconds: int) -> None:
    """End this process when it has computed for so long."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def patch(path: Path, mutant: Mutant) -> bool:
    """Give the mutant's function its new code, if it can be found."""
    module = next(
        (each for each in list(sys.modules.values()) if getattr(each, "__file__", "") == str(path)),
        None,
    )
    codes = list(_codes(compile(mutant.text, str(path), "exec"), mutant.where))
    if module is None or len(codes) != 1:
        return False
    found: Any = module
    for name in mutant.where.split("."):
        found = vars(found).get(name)
        if found is None:
            return False
    function = _unwrapped(found)
    if function is None or function.__code__.co_freevars != codes[0].co_freevars:
        return False
    function.__code__ = codes[0]
    return True


def _codes(code: types.CodeType, name: str) -> Iterator[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            if each.co_qualname == name:
                yield each
            elif "<locals>" not in each.co_qualname:
                yield from _codes(each, name)


def _unwrapped(found: Any) -> types.FunctionType | None:
    """Return the function that decorators have wrapped."""
    while not isinstance(found, types.FunctionType) or hasattr(found, "__wrapped__"):
        inner = [getattr(found, name, None) for name in ("__wrapped__", "__func__", "fget", "func")]
        found = next((each for each in inner if each is not None), None)
        if found is None:
            return None
    return found


class Suite:
    """The session of one module, from the outside."""

    def __init__(self, root: Path, module: str, files: list[str]) -> None:
        self.path = root / module
        self._files = files
        self._line, theirs = Pipe()

        def work() -> int:
            pytest.main([*OPTIONS, *files], plugins=[Serving(self.path, theirs)])
            return 0

        self._pid = fork(work)
        theirs.close()
        found = self._ask(None)
        if found is None:
            self.close()
            raise CannotRun(f"the tests of {module} cannot be run: {' '.join(files)}")
        self.seconds: dict[str, float] = found["seconds"]
        self._contexts = {int(line): set(names) for line, names in found["lines"].items()}

    def _ask(self, asked: Any) -> Any:
        try:
            self._line.send(asked)
            return self._line.recv()
        except (EOFError, BrokenPipeError):
            return None

    def tests(self, mutant: Mutant, most: float) -> list[str]:
        """Return the tests that reach a mutant, quickest first, without slow ones."""
        quick = sorted((seconds, name) for name, seconds in self.seconds.items() if seconds <= most)
        names = [name for _, name in quick]
        if not mutant.where:
            return names
        lines = range(mutant.line, mutant.last_line + 1)
        contexts = set().union(*(self._contexts.get(line, set()) for line in lines))
        return [name for name in names if {name, name.split("::")[0]} & contexts]

    def survives(self, mutant: Mutant, chosen: list[str], seconds: float) -> bool:
        """Return whether all of these tests pass with the mutant; one that hangs does not.

        The limit is one of processor time, which a busy machine does not change; `seconds` are for
        tests that wait for what never comes.
        """
        cpu = 1 + math.ceil(5.0 * sum(self.seconds[name] for name in chosen))
        original, times = self.path.read_text(), self.path.stat()
        self.path.write_text(mutant.text)  # for processes that tests start
        try:
            code = UNPATCHED
            if mutant.where:
                code = self._ask((mutant, chosen, cpu, seconds))
            if code == UNPATCHED:
                code = wait(fork(lambda: self._anew(chosen, cpu)), seconds)
        finally:
            self.path.write_text(original)
            os.utime(self.path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return code == SURVIVED

    def _anew(self, chosen: list[str], cpu: int) -> int:
        limit_processor(cpu + 5)
        return int(pytest.main([*OPTIONS, *self._files], plugins=[Trial(chosen)]))

    def close(self) -> None:
        """End the session."""
        with suppress(BrokenPipeError):
            self._line.send(False)
        wait(self._pid, 10.0)
        self._line.close()
