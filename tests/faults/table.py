"""The table of a sweep, for a terminal and for docs/faults.md."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.faults.sweep import EXCEPTION, Result

HEAD = ("fault", "boundary", "injected", "live", "restored", "wrong", "worst s to serve again")


def rows(results: Sequence[Result], *, by_boundary: bool) -> list[tuple[str, ...]]:
    """One row a fault and scenario, or a fault and boundary; the exception is a row of its own."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for r in results:
        where = r.boundary if by_boundary else r.boundary.split("/", 1)[0]
        fault = EXCEPTION if r.outcome == "exception" else r.fault
        groups.setdefault((fault, where), []).append(r)
    out = []
    for (fault, where), own in sorted(groups.items()):
        count = [sum(1 for r in own if r.outcome == o) for o in ("live", "restored")]
        wrong = sum(1 for r in own if r.outcome in ("wrong", "not reached"))
        away = [r.seconds for r in own if r.seconds is not None and r.outcome != "exception"]
        worst = f"{max(away):.1f}" if away else "–"
        down = [r for r in own if r.outcome == "exception"]
        out.append(
            (fault, where, str(len(own)), *(str(c) for c in count),
             f"{wrong}" if not down else f"{len(down)} down (known)", worst)
        )  # fmt: skip
    return out


def console(results: Sequence[Result]) -> None:
    table = Table(*HEAD)
    for row in rows(results, by_boundary=False):
        table.add_row(*row)
    Console(width=150).print(table)


def markdown(results: Sequence[Result], commit: str, date: str) -> str:
    lines = [
        f"Commit {commit}, {date}: {len(results)} cells.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "| " + " | ".join("---" for _ in HEAD) + " |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows(results, by_boundary=False)]
    return "\n".join(lines)
