"""Typed access to the entries of a strict .env file, collecting every fault on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rollpin.dotenv_strict import Document, Fault, nearest

T = TypeVar("T")

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LABEL = re.compile(r"[A-Z0-9][A-Z0-9_]*")


@dataclass(frozen=True)
class Key:
    """One known key. `default` None: required. `example` is a valid value, shown in faults."""

    example: str
    default: str | None = None


class Fields:
    """Reads keys one by one. A reader raises ValueError("what was found; what to do")."""

    def __init__(
        self, document: Document, keys: Mapping[str, Key], prefixes: Sequence[str] = ()
    ) -> None:
        self.document = document
        self.faults: list[Fault] = list(document.faults)
        self.warnings: list[str] = []
        self.lines: dict[str, int] = {key: e.line for key, e in document.entries.items()}
        self._keys = keys
        self._prefixes = prefixes
        self._bad: set[str] = set()
        self._report_unknown()

    def given(self, key: str) -> bool:
        """The file has this key, and nothing is wrong with it so far."""
        return key in self.lines and key not in self._bad

    def fault(self, key: str, text: str) -> None:
        self._bad.add(key)
        self.faults.append(Fault(self.document.path, self.lines.get(key, 1), text))

    def warn(self, key: str, text: str) -> None:
        self.warnings.append(str(Fault(self.document.path, self.lines.get(key, 1), text)))

    def take(self, key: str, read: Callable[[str], T]) -> T:
        """The value of `key`; after a fault a stand-in, so that the other keys are read too."""
        known = self._keys[key]
        entry = self.document.entries.get(key)
        if entry is None:
            if known.default is not None:
                return read(known.default)
            self.fault(key, f"{key} is missing; add it, for example {key}={known.example}")
            return read(known.example)
        if not entry.value:
            self.fault(key, f"{key} is empty; give it a value, or leave the key out")
            return read(known.example)
        try:
            return read(entry.value)
        except ValueError as error:
            self.fault(key, f"{key}: {error}")
            return read(known.example)

    def named(
        self, prefix: str, read: Callable[[str], T], name: re.Pattern[str] = LABEL
    ) -> dict[str, T]:
        """Every `PREFIX_NAME=value`, by NAME, in the order of the file. Faulty ones are left out.

        Only environment variables may be empty.
        """
        found: dict[str, T] = {}
        for key, entry in self.document.entries.items():
            if not key.startswith(prefix):
                continue
            label = key.removeprefix(prefix)
            if not name.fullmatch(label):
                self.fault(key, f"{key}: {label!r} is not a name; write {prefix}NAME=value")
            elif not entry.value and prefix != "ENV_":
                self.fault(key, f"{key} is empty; give it a value, or leave the key out")
            else:
                try:
                    found[label] = read(entry.value)
                except ValueError as error:
                    self.fault(key, f"{key}: {error}")
        return found

    def environment(self) -> dict[str, str]:
        """`ENV_NAME=value`, verbatim. Blanks want quotes: where they end must be visible."""
        for key, entry in self.document.entries.items():
            if not key.startswith("ENV_"):
                continue
            if not entry.quoted and re.search(r"\s", entry.value):
                self.fault(key, f"{key}: {entry.value!r} has blanks; put quotes around the value")
            elif entry.quoted:
                self.warn(
                    key,
                    f"{key} is read as {entry.value!r}; the quotes are not part of the value"
                    " (docker run --env-file would keep them)",
                )
            if re.search(r"TOKEN|PASSWORD|SECRET|API_?KEY", key.removeprefix("ENV_")):
                self.warn(
                    key, f"{key} looks like a secret; use {key.replace('ENV_', 'SECRET_', 1)}=FILE"
                )
        return self.named("ENV_", str, ENV_NAME)

    def dollars(self) -> None:
        """Warn about `$NAME` and `${NAME}`: compose would replace them, we do not."""
        for key, entry in self.document.entries.items():
            if re.search(r"\$[A-Za-z_{(]", entry.value):
                self.warn(key, f"{key} holds a $, which is kept as it is: nothing is expanded here")

    def _report_unknown(self) -> None:
        for key in self.document.entries:
            if key in self._keys or any(key.startswith(prefix) for prefix in self._prefixes):
                continue
            rest = key.partition("_")[2]
            near = nearest(key, [*self._keys, *(p + rest for p in self._prefixes if rest)])
            self.fault(key, f"{key} is not a known key; correct or remove it{near}")
