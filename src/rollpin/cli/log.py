"""`rollpin log HOST`: the story of a host, from its journal. Changes nothing."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from rollpin import journal
from rollpin.cli import hosts
from rollpin.errors import HostError
from rollpin.profile_values import service as service_name

# Every service's journal, or one's. A last line that a power cut has torn has no end.
_READ = """
for j in "$1"/${2:-*}/journal.jsonl; do
    [ ! -e "$j" ] || { cat "$j" && echo; } || exit 1
done
"""


@click.command()
@click.argument("host")
@hosts.inventory_option
@click.option("--service", help="Only this service's events.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
def log(host: str, inventory: str, service: str | None, as_json: bool) -> None:
    """Show what rollpin did on HOST, when, for whom, and how it ended; oldest first."""
    which = service_name(service) if service is not None else ""
    chosen = hosts.chosen(inventory, [host])
    from rollpin.places import STATE_DIR
    from rollpin.planning import remote_for

    for one in chosen:
        with hosts.connected(one):
            answer = remote_for(one).run(_READ, (STATE_DIR, which), within=30)
        if answer.status != 0:
            raise HostError(f"{one.name}: the journal cannot be read: {answer.output[-200:]}")
        entries, torn = journal.read(answer.output.splitlines())
        for entry in entries:
            said = json.dumps({"host": one.name, **asdict(entry)}) if as_json else entry.line()
            click.echo(said)
        if not entries:
            click.echo(f"{one.name}: no transaction is on record here", err=True)
        if torn:
            click.echo(f"{one.name}: {torn} line(s) of the journal cannot be read", err=True)
