"""The journal of a host: what every transaction meant to do and did, one JSON object a line. Pure.

A line that a power cut has torn is counted, never an error: the lines around it tell the story.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One event. `at` is UTC in ISO 8601, `uptime` in seconds since the host's boot."""

    at: str
    uptime: float
    service: str
    release: int
    transaction: str
    by: str
    event: str
    detail: str

    def line(self) -> str:
        """For a person: when, which release, what, by whom, and the words."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.at} {self.service} release {self.release} {self.event} by {self.by}{detail}"


def read(lines: Iterable[str]) -> tuple[list[Entry], int]:
    """Entries in the order of their time, and how many lines could not be read."""
    out: list[Entry] = []
    torn = 0
    for line in lines:
        if not line.strip():
            continue
        entry = _entry(line)
        if entry is None:
            torn += 1
        else:
            out.append(entry)
    return sorted(out, key=lambda e: e.at), torn


def _entry(line: str) -> Entry | None:
    try:
        v: Any = json.loads(line)
        return Entry(
            at=str(v["at"]),
            uptime=float(v["uptime"]),
            service=str(v["service"]),
            release=int(v["release"]),
            transaction=str(v["transaction"]),
            by=str(v["by"]),
            event=str(v["event"]),
            detail=str(v.get("detail", "")),
        )
    except (ValueError, KeyError, TypeError):
        return None
