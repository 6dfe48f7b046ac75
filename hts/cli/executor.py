"""`hts-executor`: steps simulators for a run that is elsewhere."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from hts import signals
from hts.cli import shell
from hts.config.records import Workers
from hts.determinism import numerics
from hts.errors import HtsError, RoleDied, WrongUsage
from hts.remote import executor
from hts.remote.executor import Service
from hts.runtime.process import Child, wait_child
from hts_envs.errors import BadName
from hts_envs.registry import parse, require

DESCRIPTION = """\
Step simulators of this machine for a run elsewhere: dials in to where hts-train
listens, is given replicas, and steps them until the run is over. The digest is
that of the same run without it.
"""

EPILOG = """\
examples:
  hts-train --algo ppo --env gfootball:3v1 --listen tcp://127.0.0.1:5555
  hts-executor --env gfootball:3v1 --connect tcp://127.0.0.1:5555

It may be started before the run, and stays when the run goes away and comes
back; when it is ended, or dies, others go on in its place, or the run waits for
the next.

exit code: 0 the run is over, 1 something failed, 2 wrong usage, or the run has
other spaces, 130 interrupted
"""

_ADDRESS = re.compile(r"tcp://(\[[^\]]+\]|[^:\[\]/]+):(\d+)|ipc://.+")
_SECONDS_TO_HEAR = 2.0  # that the run is over, behind the first one who has
_SETTLED = 0.6  # seconds in which nobody has been given anything
_ONCE_IN = 2.0  # seconds in which several of them may say the same
_DEATHS = 3
_YOUNG = 60.0  # seconds in which so many deaths in a row are too many


def parser() -> argparse.ArgumentParser:
    """The command line of `hts-executor`."""
    made = shell.Parser(
        prog="hts-executor",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--connect", metavar="ADDRESS", required=True, help="such as tcp://127.0.0.1:5555")
    add("--env", metavar="ENV", required=True, help="what the run was started with")
    add(
        "--processes",
        metavar="N|auto",
        type=_whole,
        default=None,
        help="that step side by side (auto: one for each core)",
    )
    add(
        "--seats",
        metavar="N|auto",
        type=_whole,
        default=None,
        help="of each process, one replica each (auto: an equal share of what the run has)",
    )
    add(
        "--rows",
        metavar="N",
        type=_whole,
        default=None,
        help="replicas of a seat, which are stepped together: the run's machine.seat",
    )
    add("--keys", metavar="DIR", help="of this machine, made by hts-keys")
    add("--stay", action="store_true", help="behind the end of a run wait for the next one")
    add(
        "--not-replayable",
        action="store_true",
        help="an episode cannot be begun again: where one gets lost it is cut short",
    )
    return made


def _whole(text: str) -> int | None:
    found = shell.reads(Workers)(text)
    return None if found == "auto" else int(found)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script."""
    typed = parser().parse_args(argv)
    return shell.run("hts-executor", lambda: _serve(typed))


def _serve(typed: argparse.Namespace) -> int:
    service = _service(typed)
    signals.listen()  # SIGTERM ends it as Ctrl-C does
    numerics.set_environment()
    count = typed.processes or len(os.sched_getaffinity(0))
    processes = "1 process" if count == 1 else f"{count} processes"
    _say(f"{service.env} for {service.address}, in {processes}")
    crew = _Crew(service, count)
    try:
        return crew.run()
    except WrongUsage:
        raise
    except HtsError as error:
        _say(str(error))
        return shell.FAILED
    finally:
        crew.end()


def _service(typed: argparse.Namespace) -> Service:
    """What was typed, checked."""
    if _ADDRESS.fullmatch(typed.connect) is None:
        raise WrongUsage(
            f"--connect {typed.connect}: must be tcp://HOST:PORT or ipc://PATH, "
            "such as tcp://127.0.0.1:5555"
        )
    spec = parse(typed.env)
    if spec.family.name == "remote":
        raise BadName("--env remote: has no simulator that can be built here; name another family")
    require(spec.family)
    return Service(
        typed.connect,
        typed.env,
        rows=typed.rows,
        seats=typed.seats,
        keys=typed.keys,
        replayable=not typed.not_replayable,
        stays=typed.stay,
    )


class _Process:
    """One of them, and whoever takes its place."""

    def __init__(self, name: str, service: Service) -> None:
        self.name = name
        self.held: list[int] = []
        self.over = False
        self._service = service
        self._deaths = 0
        self.start()

    def start(self) -> None:
        self.since = time.monotonic()
        self.ready = self.gone = False
        self.child = Child(self.name, executor.run, self._service)

    def again(self, death: RoleDied) -> None:
        """Another one in its place, unless they die one after the other."""
        young = time.monotonic() - self.since < _YOUNG
        self._deaths = self._deaths + 1 if young else 1
        if not self.ready or self._deaths > _DEATHS:
            raise death
        self.child.end()
        self.held = []
        self.start()


class _Crew:
    """The processes, and what is heard of them."""

    def __init__(self, service: Service, count: int) -> None:
        self._service = service
        self._processes: list[_Process] = []
        self._told: dict[str, float] = {}
        self._holds: list[int] = []
        self._changed: float | None = None  # since when they may hold something else than was told
        self._began = False
        for number in range(count):
            self._processes.append(_Process(f"executor {number}", service))

    def run(self) -> int:
        """Until the run is over; without an end, where it stays."""
        until: float | None = None
        while not all(process.over for process in self._processes):
            living = [each.child for each in self._processes if not each.over]
            child = wait_child(living, _SETTLED / 2)
            if child is not None:
                with signals.undisturbed():
                    self._hear(next(each for each in self._processes if each.child is child))
            self._tell_held()
            if any(process.over for process in self._processes):
                until = until or time.monotonic() + _SECONDS_TO_HEAR
                if time.monotonic() > until:
                    break
        _say("the run is over")
        return shell.DONE

    def _hear(self, process: _Process) -> None:
        try:
            said = process.child.hear()
        except RoleDied as death:
            process.gone = True
            process.again(death)
            _say(f"{death.short}; another one goes on in its place")
            return
        for kind, told in said.items():
            self._take[kind](self, process, told)

    def _ready(self, process: _Process, _: bool) -> None:
        process.ready = True
        if self._began:
            process.child.pipe.send(go=True)
        elif all(each.ready for each in self._processes):
            self._began = True
            for each in self._processes:
                each.child.pipe.send(go=True)

    def _over(self, process: _Process, _: bool) -> None:
        if not self._service.stays:
            process.over = True
            return
        if process.held:
            self._note(process, "the run is over; waiting for the next one")
        process.held = []
        self._holds = []

    def _held(self, process: _Process, held: list[int]) -> None:
        process.held = held
        self._changed = time.monotonic()

    def _tell_held(self) -> None:
        """When nobody has been given anything for a moment."""
        if self._changed is None or time.monotonic() - self._changed < _SETTLED:
            return
        self._changed = None
        held = sorted({replica for each in self._processes for replica in each.held})
        if held != self._holds:
            self._holds = held
            _say(f"holds {numbered(held)}")

    def _note(self, _: _Process, sentence: str) -> None:
        """Once, where several say the same at about the same time."""
        now = time.monotonic()
        if now - self._told.get(sentence, -_ONCE_IN) >= _ONCE_IN:
            _say(sentence)
        self._told = {each: at for each, at in self._told.items() if now - at < _ONCE_IN}
        self._told[sentence] = now

    def _refused(self, _: _Process, why: str) -> None:
        raise WrongUsage(why)

    def _broken(self, _: _Process, why: str) -> None:
        raise HtsError(why)

    _take: ClassVar[dict[str, Callable[..., None]]] = {
        "ready": _ready,
        "over": _over,
        "holds": _held,
        "note": _note,
        "refused": _refused,
        "broken": _broken,
    }

    def end(self) -> None:
        """All of them at once; each says goodbye."""
        for process in self._processes:
            if not process.over and not process.gone:
                os.kill(process.child.pid, signal.SIGTERM)
        for process in self._processes:
            process.child.end()


def numbered(replicas: Sequence[int]) -> str:
    """Replicas by their numbers, several in a row as from the first to the last."""
    if not replicas:
        return "no replica"
    rows: list[list[int]] = []
    for replica in replicas:
        if rows and rows[-1][-1] + 1 == replica:
            rows[-1].append(replica)
        else:
            rows.append([replica])
    words = [str(row[0]) if len(row) == 1 else f"{row[0]} to {row[-1]}" for row in rows]
    text = ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]
    return f"replica {text}" if len(replicas) == 1 else f"replicas {text}"


def _say(sentence: str) -> None:
    print(f"hts-executor: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
