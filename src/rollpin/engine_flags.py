"""Flags of an engine's command line: `--a b`, `--a b c`, `--a=b`, and their known aliases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_FLAG = re.compile(r"--?[A-Za-z]")

# Spellings that SGLang and vLLM read as the same flag. The first one names the group.
_ALIASES = (
    ("--model-path", "--model"),
    ("--tp-size", "--tp", "--tensor-parallel-size", "-tp"),
    ("--pp-size", "--pp", "--pipeline-parallel-size", "-pp"),
    ("--dp-size", "--dp", "--data-parallel-size", "-dp"),
    ("--ep-size", "--ep", "--expert-parallel-size"),
)
_CANONICAL = {spelling: group[0] for group in _ALIASES for spelling in group}

# vLLM collects these.
_REPEATABLE = frozenset({"--middleware"})


class _Flag(NamedTuple):
    name: str
    values: tuple[str, ...]
    start: int
    end: int


def flags(argv: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Flags as written → their values (empty for a switch). The last one wins, as in argparse."""
    return {flag.name: flag.values for flag in _walk(argv)}


def value(argv: Sequence[str], name: str) -> str | None:
    """The first value of `name` or one of its aliases; None when absent or a mere switch."""
    found = [flag.values for flag in _walk(argv) if canonical(flag.name) == canonical(name)]
    return found[-1][0] if found and found[-1] else None


def without(argv: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """`argv` with these flags (and aliases) and their values taken out."""
    dropped = {canonical(name) for name in names}
    gone: set[int] = set()
    for flag in _walk(argv):
        if canonical(flag.name) in dropped:
            gone.update(range(flag.start, flag.end))
    return tuple(word for place, word in enumerate(argv) if place not in gone)


def repeated(argv: Sequence[str]) -> tuple[str, ...]:
    """Flags given more than once, under whatever alias, as written the second time."""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for flag in _walk(argv):
        name = canonical(flag.name)
        if name in seen and name not in _REPEATABLE:
            twice[flag.name] = None
        seen.add(name)
    return tuple(twice)


def canonical(name: str) -> str:
    """One name for all spellings of a flag; vLLM also reads underscores."""
    dashed = name[:2] + name[2:].replace("_", "-")
    return _CANONICAL.get(dashed, dashed)


def is_flag(word: str) -> bool:
    return bool(_FLAG.match(word))


def _walk(argv: Sequence[str]) -> Iterator[_Flag]:
    place = _program_end(argv)
    while place < len(argv):
        word, start = argv[place], place
        place += 1
        if not is_flag(word):
            continue
        if "=" in word:
            name, _, attached = word.partition("=")
            yield _Flag(name, (attached,), start, place)
            continue
        while place < len(argv) and not is_flag(argv[place]):
            place += 1
        yield _Flag(word, tuple(argv[start + 1 : place]), start, place)


def _program_end(argv: Sequence[str]) -> int:
    """Where the engine's own arguments begin: after `python3 … -m module`, else at 0."""
    for place, word in enumerate(argv):
        if word == "-m":
            return place + 2
        if word.startswith("--"):
            break
    return 0
