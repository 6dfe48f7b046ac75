"""The nearest right word for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that looks most like `word`, or None when nothing comes close."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.55)
    return by_lower[close[0]] if close else None


def hint(word: str, candidates: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or the few candidates there are, or nothing."""
    known = sorted(candidates)
    found = nearest(word, known)
    if found is not None:
        return f" (did you mean {found!r}?)"
    if 0 < len(known) <= 8:
        return f" (available: {', '.join(known)})"
    return ""
