"""`rollpin rollback INVENTORY`: the operation of deploys/rollback.py, without a deploy file."""

from __future__ import annotations

import click

from rollpin.cli.run import run_operation
from rollpin.profile_values import service as service_name


@click.command()
@click.argument("inventory")
@click.option("--to", type=click.IntRange(0), metavar="N", help="A release; 0: before release 1.")
@click.option("--service", default="glm53", show_default=True, help="The service.")
@click.option("--lease", help="How long the guard waits for this controller, like 2m.")
@click.option("--data", multiple=True, metavar="NAME=VALUE", help="pyinfra's, like plan=HASH.")
@click.option("--limit", multiple=True, metavar="HOST", help="Only these hosts; may be repeated.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry", is_flag=True, help="Show what would be done, and every reason to refuse.")
def rollback(
    inventory: str,
    to: int | None,
    service: str,
    lease: str | None,
    data: tuple[str, ...],
    limit: tuple[str, ...],
    yes: bool,
    dry: bool,
) -> None:
    """Go back to the release before, or to the one that --to names, on every host of INVENTORY.

    A new numbered and guarded release: judged as a deploy is, and taken back when it is not good.
    """
    arguments = [f"service={service_name(service)}"] + ([] if to is None else [f"to={to}"])
    run_operation(
        "release.rolled_back",
        arguments,
        inventory,
        limit,
        data=[*data, *([] if lease is None else [f"lease={lease}"])],
        flags=["-y"] * yes + ["--dry"] * dry,
    )
