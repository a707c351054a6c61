"""The journal: read whole, whatever a power cut left of its lines."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rollpin import journal


def line(at: str, event: str = "arm", detail: str = "x") -> str:
    return json.dumps(
        {
            "at": at,
            "uptime": 12.5,
            "service": "glm53",
            "release": 2,
            "transaction": "glm53-2-ab",
            "by": "jo@ops",
            "event": event,
            "detail": detail,
        }
    )


def test_oldest_first_and_torn_lines_are_counted() -> None:
    whole = line("2026-01-02T00:00:00Z", "committed")
    entries, torn = journal.read(
        [whole, "", line("2026-01-01T00:00:00Z"), whole[:40], "[1]", "null", "\x00\x00"]
    )
    assert [(e.at, e.event) for e in entries] == [
        ("2026-01-01T00:00:00Z", "arm"),
        ("2026-01-02T00:00:00Z", "committed"),
    ]
    assert torn == 4


def test_a_line_for_a_person() -> None:
    (entry,), torn = journal.read([line("2026-01-01T00:00:00Z", "restored", "by guard")])
    assert torn == 0
    assert entry.line() == "2026-01-01T00:00:00Z glm53 release 2 restored by jo@ops: by guard"


@given(st.integers(0, 200))
def test_a_cut_anywhere_costs_one_line(at: int) -> None:
    first, second = line("2026-01-01T00:00:00Z"), line("2026-01-02T00:00:00Z")
    cut = second[: min(at, len(second) - 1)]
    entries, torn = journal.read([first, cut])
    assert [e.at for e in entries] == ["2026-01-01T00:00:00Z"]
    assert torn == (1 if cut.strip() else 0)
