"""What every command has in common: how failures are told, and what the exit code says.

0 done, 1 failed, 2 wrong usage (one sentence for each mistake, never a traceback), 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hts import signals
from hts.cli import IS_COMMAND
from hts.determinism import numerics
from hts.errors import BadConfig, SimulatorFailed, WrongUsage
from hts_envs.errors import BadName, BadOption, MissingPackages
from hts_envs.options import coerce
from hts_envs.spelling import hint

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """argparse, with the nearest right spelling for what it does not know.

    `option_for` returns the option that a bare word was probably meant for.
    """

    option_for: Callable[[str], str | None] = staticmethod(lambda _: None)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = next((word for word in unknown if word.startswith("-")), unknown[0])
            self.error(self._unknown(word))
        assert isinstance(found, argparse.Namespace), "no other kind of namespace is given"
        return found

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            option = self.option_for(word)
            close = f" (did you mean '{option} {word}'?)" if option else ""
            return f"{word!r} belongs to no option{close}"
        known = [name for action in self._actions for name in action.option_strings]
        close = hint(word.partition("=")[0], [name for name in known if name.startswith("--")])
        return f"there is no option {word!r}{close}"

    def error(self, message: str) -> NoReturn:
        """One sentence, not the whole usage before it."""
        message = message.removeprefix("argument ")
        message = message.replace(": not allowed with argument ", " cannot be combined with ")
        tell(self.prog, f"{message}; --help lists the options")
        sys.exit(WRONG_USAGE)


def reads(kind: Any) -> Callable[[str], Any]:
    """Return a `type` for `add_argument`: text as `kind`, or a sentence that says why not."""

    def read(text: str) -> Any:
        try:
            return coerce(text, kind)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def run(command: str, work: Callable[[], int], *, listens: bool = True) -> int:
    """Do a command's work, and return its exit code, which no Ctrl-C changes afterwards.

    Ctrl-C raises KeyboardInterrupt inside the work; where the work begins with imports, it is
    `listens=False`, and calls `signals.listen` after them.
    """
    try:
        if IS_COMMAND and listens:
            signals.listen()
        code = _code_of(command, work)
        if IS_COMMAND:
            signals.ignore()
    except KeyboardInterrupt:  # a second one, or one between the work and its end
        code = INTERRUPTED
        signals.ignore()
    return code


def _code_of(command: str, work: Callable[[], int]) -> int:
    """Do a command's work; what the user can mend is told without a traceback."""
    # Now: to read an environment's options may import a simulator, and torch with it.
    numerics.set_environment()
    try:
        return work()
    except BadConfig as error:
        for problem in error.problems:
            tell(command, problem)
    except (WrongUsage, BadName, BadOption, MissingPackages) as error:
        tell(command, str(error))
    except SimulatorFailed as error:
        if error.traceback:
            print(error.traceback.rstrip(), file=sys.stderr)
        tell(command, str(error))
        return FAILED
    except KeyboardInterrupt:
        tell(command, "interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        sys.stderr.close()
        return DONE
    return WRONG_USAGE


def tell(command: str, sentence: str) -> None:
    """One line for the person at the terminal, beside the command's own output."""
    print(f"{command}: {sentence}", file=sys.stderr)
