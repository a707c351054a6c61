"""The profile dialect: python-dotenv's grammar without interpolation, read strictly.

What python-dotenv skips or guesses is a fault here, with its line: unparsable lines, keys without
a value, duplicates, `export`, quoted keys, values over several lines, comments behind unquoted
values, invisible characters. All faults of a file are found in one reading.
"""

from __future__ import annotations

import difflib
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dotenv.parser import Binding, parse_stream

from rollpin.errors import ProfileError


@dataclass(frozen=True)
class Fault:
    """One thing wrong in a file: what was found, and after the semicolon what to do."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Entry:
    """One `KEY=value`. `quoted`: the whole value stood in quotes, which are gone."""

    key: str
    value: str
    line: int
    quoted: bool


@dataclass(frozen=True)
class Document:
    path: str
    entries: Mapping[str, Entry]
    faults: tuple[Fault, ...]


def read_text(path: Path) -> str:
    """The text of a file that a person wrote. Raises ProfileError when it cannot be read."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ProfileError(
            f"{path}:1: the file cannot be read ({why}); check the path and its mode"
        ) from error
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise ProfileError(f"{path}:{line}: {found}; save the file as UTF-8") from error


def parse(text: str, path: str) -> Document:
    """Every entry and every fault of `text`. Pure; `path` only labels the faults."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    faults = list(_control_characters(text, path))
    # Control characters are white space or line ends to the grammar: they were reported, and go.
    text = "".join(" " if _is_control(char) else char for char in text)
    entries: dict[str, Entry] = {}
    for binding in parse_stream(io.StringIO(text)):
        written = binding.original.string.lstrip()
        blank = binding.original.string[: len(binding.original.string) - len(written)]
        line = binding.original.line + blank.count("\n")
        found = _unreadable(binding, written)
        if found is None and binding.key is not None:
            entry = Entry(binding.key, binding.value or "", line, _raw(written)[:1] in ("'", '"'))
            found = _misleading(entry, written)
            if entry.key in entries:
                first = entries[entry.key].line
                found = f"{entry.key} is given again (first on line {first}); keep one of them"
            else:
                entries[entry.key] = entry
        if found is not None:
            faults.append(Fault(path, line, found))
    return Document(path, entries, tuple(faults))


def nearest(key: str, known: Iterable[str]) -> str:
    """` (nearest known key: X)`, or nothing when no known key is near."""
    close = difflib.get_close_matches(key.upper(), list(known), n=1, cutoff=0.6)
    return f" (nearest known key: {close[0]})" if close else ""


def _raw(written: str) -> str:
    """What stands after the first `=` and its blanks. Keys hold no `=`."""
    return written.partition("=")[2].strip()


def _unreadable(binding: Binding, written: str) -> str | None:
    """Why the grammar found no `KEY=value` here, or None."""
    shown = repr(written.split("\n")[0].rstrip()[:60])
    if binding.error:
        if written.startswith("-"):
            return f"{shown} is no KEY=value; a value ends with its line: put the command on one"
        if _raw(written)[:1] in ("'", '"'):
            return (
                f"{shown}: the quotes do not close, or text follows them;"
                " quote the whole value or none of it"
            )
        return f"{shown} is no KEY=value; write KEY=value, or # before a comment"
    if binding.key is None:
        return None
    if written.startswith("'"):
        return f"{shown} has a quoted key; write the key without quotes"
    if re.match(r"export[ \t]", written):
        return f"{shown} starts with export; drop it: no shell reads this file"
    if binding.value is None:
        return f"{binding.key} has no value; write {binding.key}=value"
    return None


def _misleading(entry: Entry, written: str) -> str | None:
    """Why this readable entry probably does not mean what its author thinks, or None."""
    for char in entry.key + entry.value:
        if unicodedata.category(char) in ("Cf", "Zl", "Zp") or (char != " " and _is_space(char)):
            name = unicodedata.name(char, "unnamed")
            return f"{entry.key} holds U+{ord(char):04X} {name}; type an ordinary character instead"
    if "\n" in entry.value:
        return f"{entry.key} spans several lines; a value is one line: check where its quotes close"
    if entry.quoted:
        return None
    if _raw(written) != entry.value:
        return (
            f"{entry.key}: inline comment after an unquoted value;"
            " put the comment on its own line or quote the value"
        )
    if entry.value.endswith("\\"):
        return f"{entry.key} ends with a backslash; lines are not continued: put the value on one"
    return None


def _control_characters(text: str, path: str) -> Iterator[Fault]:
    for number, line in enumerate(text.split("\n"), start=1):
        found = sorted({f"0x{ord(char):02x}" for char in line if _is_control(char)})
        if found:
            listed = ", ".join(found)
            yield Fault(path, number, f"control character {listed}; remove it from the line")


def _is_control(char: str) -> bool:
    return unicodedata.category(char) == "Cc" and char not in "\n\t"


def _is_space(char: str) -> bool:
    return unicodedata.category(char) == "Zs"
