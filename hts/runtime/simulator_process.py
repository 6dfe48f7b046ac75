"""A child process for code of a simulator, which may raise, exit or crash there.

Simulators of a run belong to executors. This is for what happens outside a run: the look at an
environment before it begins, and the examination of `hts-check`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hts.errors import RoleDied, SimulatorFailed
from hts.runtime.process import Child, Pipe, wait_message
from hts.tracebacks import crash_stack, simulator_sentence, simulator_traceback
from hts_envs import errors

_REFUSALS = {each.__name__: each for each in (errors.BadName, errors.BadOption)} | {
    errors.MissingPackages.__name__: errors.MissingPackages
}
"""Errors that the person who typed the environment's name can mend; the parent raises them too."""


class SimulatorProcess:
    """A process that runs `role(pipe, *given)`; its failures are those of the environment `env`.

    `doing` says what the simulator is busy with. The role's messages may change it.
    """

    def __init__(self, env: str, role: Callable[..., None], *given: Any) -> None:
        self.doing = "it was built"
        self._env = env
        self._child = Child("simulator", _run, role, given)

    def __enter__(self) -> SimulatorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def send(self, **message: Any) -> None:
        """Ask for something; a process that is gone is noticed by the next `receive`."""
        try:
            self._child.pipe.send(**message)
        except OSError:
            return

    def receive(self) -> dict[str, Any]:
        """Wait for the next message.

        Raises what the simulator's refusal was, or SimulatorFailed where it raised or is gone.
        """
        try:
            message = wait_message([self._child])
        except RoleDied as death:
            stack, _, end = death.what.rpartition("\n")
            sentence = f"{self._env}, while {self.doing}: {end.replace('it ', 'its process ', 1)}"
            raise SimulatorFailed(sentence, crash_stack(stack)) from None
        if "refused" in message:
            raise _REFUSALS[message["refused"]](message["sentence"])
        if "failed" in message:
            raise SimulatorFailed(message["failed"], message["traceback"])
        return message


def _run(pipe: Pipe, role: Callable[..., None], given: tuple[Any, ...]) -> None:
    """The child's side."""
    try:
        role(pipe, *given)
    except tuple(_REFUSALS.values()) as error:
        pipe.send(refused=type(error).__name__, sentence=str(error))
    except Exception as error:
        pipe.send(failed=simulator_sentence(error), traceback=simulator_traceback(error))
