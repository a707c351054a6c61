"""`rollpin lab …`: real hosts on this machine, to try everything on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import click

from rollpin.errors import RollpinError
from rollpin.lab import down as down_
from rollpin.lab import images, network, power, registry, state
from rollpin.lab import up as up_
from rollpin.lab.host import Host, hosts, open_host


@click.group()
@click.option(
    "--lab",
    "name",
    envvar="ROLLPIN_LAB",
    default="lab",
    show_default=True,
    help="Which lab; several can stand side by side. Also: ROLLPIN_LAB.",
)
@click.pass_context
def lab(context: click.Context, name: str) -> None:
    """A lab of real hosts on this machine: systemd, sshd and Docker in systemd-nspawn."""
    context.obj = state.checked_name(name)


@lab.command()
@click.option("--hosts", "count", type=int, help="How many hosts (a new lab: 3).")
@click.pass_obj
def up(name: str, count: int | None) -> None:
    """Bring the lab up, or repair it; does nothing to a healthy one."""
    up_.up(name, count, say=click.echo)


@lab.command()
@click.option("--purge", is_flag=True, help="Drop the cached base trees also.")
@click.pass_obj
def down(name: str, purge: bool) -> None:
    """Remove the lab: its processes, interfaces and files."""
    was_there = down_.down(name, purge=purge)
    click.echo(f"The lab {name} is gone." if was_there else f"There was no lab {name}.")


@lab.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def status(name: str, as_json: bool) -> None:
    """Show the hosts, whether they are on, and the images."""
    opened = state.load(name)
    on = {seat.name: power.is_on(opened, seat.name) for seat in opened.seats}
    serves = registry.find(opened) is not None
    if as_json:
        seats = [
            {"name": s.name, "address": s.address, "suite": s.suite, "engine": s.engine,
             "on": on[s.name]}
            for s in opened.seats
        ]  # fmt: skip
        known = {"lab": name, "bridge": opened.bridge, "subnet": opened.subnet}
        where = {"registry": opened.registry, "registry_on": serves, "images": opened.images}
        click.echo(json.dumps({**known, **where, "hosts": seats}, indent=2))
        return
    click.echo(f"lab {name} on {opened.subnet} ({opened.bridge})")
    for seat in opened.seats:
        state_ = "on" if on[seat.name] else "off"
        click.echo(f"  {seat.name}  {seat.address}  {seat.suite}, {seat.engine}  {state_}")
    click.echo(f"  registry  {opened.registry}  {'on' if serves else 'off'}")
    for tag, digest in opened.images.items():
        click.echo(f"    {registry.REPOSITORY}:{tag}@{digest}")


@lab.command(context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--user", type=click.Choice(["root", "deploy"]), default="root", show_default=True)
@click.pass_obj
def ssh(name: str, host: str, command: tuple[str, ...], user: str) -> None:
    """Log in to HOST, or run COMMAND there; ends with its exit status."""
    opened = open_host(host, name)
    network.require(opened.lab)
    argv = opened.ssh("deploy" if user == "deploy" else "root")
    sys.stdout.flush()
    os.execvp(argv[0], [*argv, "--", *command] if command else argv)  # noqa: S606


@lab.command()
@click.argument("host")
@click.pass_obj
def reboot(name: str, host: str) -> None:
    """Reboot HOST cleanly, and wait until it is up again."""
    open_host(host, name).reboot()


@lab.command("power-off")
@click.argument("host")
@click.pass_obj
def power_off(name: str, host: str) -> None:
    """Take HOST's power away: everything on it dies at once."""
    open_host(host, name).power_off()


@lab.command("power-on")
@click.argument("host")
@click.pass_obj
def power_on(name: str, host: str) -> None:
    """Boot HOST, and wait until it is up."""
    open_host(host, name).power_on()


@lab.command()
@click.argument("names", metavar="[HOST]...", nargs=-1)
@click.pass_obj
def reset(name: str, names: tuple[str, ...]) -> None:
    """Put hosts (all, if none is named) back to what `up` left."""
    opened = state.load(name)
    chosen = [Host(opened, opened.seat(one)) for one in names] or hosts(opened)
    _side_by_side(lambda host: host.reset(), chosen)
    click.echo(f"Reset: {', '.join(host.name for host in chosen)}.")


@lab.command("move-tag", hidden=True)
@click.argument("tag")
@click.argument("to")
@click.pass_obj
def move_tag(name: str, tag: str, to: str) -> None:
    """Let TAG in the lab's registry name what the tag or digest TO names."""
    click.echo(images.move_tag(state.load(name), tag, to))


def _side_by_side(work: Callable[[Host], None], chosen: list[Host]) -> None:
    """Do the same on several hosts at once; all are tried, the first error is raised."""
    with ThreadPoolExecutor(max_workers=len(chosen)) as pool:
        futures = [pool.submit(work, host) for host in chosen]
    for future in futures:
        error = future.exception()
        if isinstance(error, RollpinError):
            raise error
        future.result()
