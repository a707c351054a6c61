"""`rollpin resume HOST`: goes on with the open transaction of a host."""

from __future__ import annotations

import click

from rollpin.cli import hosts
from rollpin.cli.run import run_operation
from rollpin.profile_values import service as service_name


@click.command()
@click.argument("host")
@hosts.inventory_option
@click.option("--service", help="Only this service's transaction.")
def resume(host: str, inventory: str, service: str | None) -> None:
    """Go on with the open transaction of HOST, whose controller is gone.

    First the lease is watched: while somebody renews it, that controller lives, and this is
    refused (abort ends it). Then swap, verify, commit, or back, with a deploy's verdict; nothing
    is asked. With nothing open nothing is done.
    """
    arguments = [] if service is None else [f"service={service_name(service)}"]
    run_operation("resume.resumed", arguments, inventory, [host], flags=["-y"])
