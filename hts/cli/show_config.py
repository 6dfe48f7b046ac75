"""The resolved configuration as a person reads it: every value, and where it was given."""

from __future__ import annotations

from hts.config import Resolved, flatten
from hts.config.resolve import DEFAULT
from hts_envs.options import written

_DIM, _PLAIN = "\033[2m", "\033[0m"


def show_config(resolved: Resolved, *, colour: bool) -> str:
    """YAML that `--config` takes again; the origin of each value stands behind it."""
    values = flatten(resolved.config)
    lines = [f"# experiment {resolved.config.experiment.identity()}"]
    section: tuple[str, ...] = ()
    for path, value in values.items():
        *parents, name = path.split(".")
        for depth, parent in enumerate(parents):
            if section[: depth + 1] != tuple(parents[: depth + 1]):
                lines.append(f"{'  ' * depth}{parent}:")
                section = tuple(parents[: depth + 1])
        section = tuple(parents)
        text = f"{'  ' * len(parents)}{name}: {_yaml(value)}"
        origin = resolved.origins.get(path, DEFAULT)
        dim = colour and origin == DEFAULT
        note = f"# {origin}{_ignored(path, resolved)}"
        lines.append(f"{_DIM}{text:<44}{note}{_PLAIN}" if dim else f"{text:<44}{note}")
    return "\n".join(lines)


def _ignored(path: str, resolved: Resolved) -> str:
    """Return why a value has no effect in this run, or nothing."""
    if path == "machine.evaluate_every" and resolved.config.experiment.env.startswith("remote:"):
        return "; no effect: only simulators know this environment"
    return ""


def _yaml(value: object) -> str:
    text = written(value)
    if isinstance(value, tuple):
        return f"[{text.replace(',', ', ')}]"
    return f'"{text}"' if isinstance(value, str) and (":" in text or not text) else text
