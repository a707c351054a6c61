"""`rollpin abort HOST`: ends the open transaction of a host by going back."""

from __future__ import annotations

import click

from rollpin.cli import hosts
from rollpin.cli.run import run_operation
from rollpin.profile_values import service as service_name


@click.command()
@click.argument("host")
@hosts.inventory_option
@click.option("--service", help="Only this service's transaction.")
def abort(host: str, inventory: str, service: str | None) -> None:
    """End the open transaction of HOST by going back, also when its controller hangs.

    What served before serves again; nothing is asked. With nothing open nothing is done.
    """
    arguments = [] if service is None else [f"service={service_name(service)}"]
    run_operation("recovery.restored", arguments, inventory, [host], flags=["-y"])
