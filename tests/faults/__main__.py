"""`scripts/faults`: the sweep on the lab that ROLLPIN_LAB names."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

import click

from rollpin.lab import state, up
from rollpin.lab.host import hosts
from tests.faults import sweep
from tests.faults.bench import Bench
from tests.faults.cases import SCENARIOS
from tests.faults.table import console, markdown
from tests.lab.controller import ROOT, side_by_side

RESULTS = ROOT / ".faults" / "results.jsonl"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--sample", type=click.IntRange(1), help="So many cells; the commit's hash is the seed."
)
@click.option("--only", multiple=True, help="Cells whose name contains this; may be repeated.")
@click.option("--again", is_flag=True, help="Only cells that ended wrong when last swept.")
@click.option("--list", "listed", is_flag=True, help="Name the cells, hurt nobody.")
@click.option("--fresh", is_flag=True, help="Forget the results of this commit.")
@click.option("--minutes", type=float, help="Begin no further cell after so long.")
@click.option("--seed", help="Instead of the commit's hash.")
@click.option("--markdown", "as_markdown", is_flag=True, help="The table as docs/faults.md has it.")
def main(
    sample: int | None,
    only: tuple[str, ...],
    again: bool,
    listed: bool,
    fresh: bool,
    minutes: float | None,
    seed: str | None,
    as_markdown: bool,
) -> None:
    """Every fault at every boundary of a first deploy, a next deploy, a rollback and a deploy that
    is taken back. Ends with status 1 when a cell ended wrong, a boundary was not reached, or the
    plan has a command that no boundary stands before.
    """
    of = sweep.commit()
    name = state.default_name()
    lab = up.up(name, None if state.exists(name) else 3)
    own = hosts(lab)[:3]
    began = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:7.1f} s  {text}")

    kept = sweep.Kept(RESULTS, of)
    if fresh and RESULTS.exists():
        RESULTS.unlink()
    benches = [Bench(h) for h in own]
    groups = [["first", "next"], ["rollback"], ["failed"]]
    recorded = side_by_side(
        own,
        lambda h: [sweep.record(benches[own.index(h)], s) for s in groups[own.index(h) % 3]],
    )
    boundaries = [b for group in recorded for found, _ in group for b in found]
    missing = []
    names = {s: {b.words for b in boundaries if b.scenario == s} for s in SCENARIOS}
    names["failed"] |= names["next"]
    for scenarios, group in zip(groups, recorded, strict=True):
        for scenario, (_, planned) in zip(scenarios, group, strict=True):
            missing += [
                f"{scenario}: {x}"
                for x in planned
                # what a release that failed would have pruned, had it been committed
                if not (scenario == "failed" and x.startswith("docker rm "))
                and not {x, sweep.by_id(x)} & names[scenario]
            ]
    say(f"{len(boundaries)} boundaries of {len(SCENARIOS)} scenarios")
    chosen = sweep.cells(boundaries)
    everything = len(chosen)
    if only:
        chosen = [c for c in chosen if all(x in c.key for x in only)]
    if again:
        last = kept.load(any_commit=True)
        bad_before = {k for k, r in last.items() if r.outcome in sweep.BAD}
        chosen = [c for c in chosen if c.key in bad_before]
    if sample:
        chosen = sweep.sample(chosen, sample, seed or of)
    if listed:
        for cell in chosen:
            click.echo(cell.key)
        return
    results = {} if sample else kept.load()
    left = chosen if again else [c for c in chosen if c.key not in results]
    say(f"commit {of}: {len(chosen)} of {everything} cells, {len(chosen) - len(left)} done before")

    def done(result: sweep.Result) -> None:
        results[result.key] = result
        if not sample:
            kept.add(result)
        away = "" if result.seconds is None else f", away {result.seconds:g} s"
        say(f"{result.host}: {result.outcome:9} {result.key}{away} (took {result.took:g} s)")
        for fault in result.faults:
            click.echo("    " + fault.replace("\n", "\n    "))

    end = None if minutes is None else began + minutes * 60
    sweep.run(own, left, done, end)
    shown = [results[c.key] for c in chosen if c.key in results]
    if as_markdown:
        click.echo(markdown(shown, of, datetime.now(UTC).strftime("%Y-%m-%d")))
    else:
        console(shown)
    for x in missing:
        click.echo(f"the plan has a command that no boundary stands before: {x}", err=True)
    bad = [r for r in shown if r.outcome in sweep.BAD]
    say(f"{len(shown)} of {len(chosen)} cells: {len(bad)} ended wrong or were not reached")
    sys.exit(1 if bad or missing or len(shown) < len(chosen) else 0)


main()
