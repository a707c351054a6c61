"""`rollpin logs HOST`: what the engine of a release said, also of one that failed."""

from __future__ import annotations

import click

from rollpin import releases
from rollpin.cli import hosts
from rollpin.errors import HostError, UsageError
from rollpin.observe import HostState, Release, Unknown
from rollpin.profile_values import service as service_name

# The container while there is one; the kept log of a release that was taken back.
_READ = r"""
if [ -n "$1" ] && docker inspect --type container "$1" >/dev/null 2>&1; then
    exec timeout -k 5 50 docker logs --timestamps --tail "$3" "$1"
fi
[ -e "$2/logs/engine.log" ] && exec tail -n "$3" "$2/logs/engine.log"
echo "neither its container nor $2/logs/engine.log is there"
exit 1
"""


@click.command()
@click.argument("host")
@hosts.inventory_option
@click.option("--service", default="glm53", show_default=True, help="The service.")
@click.option(
    "--release", "number", type=click.IntRange(1), help="A release; without it the newest."
)
@click.option("--tail", type=click.IntRange(1), default=200, show_default=True, help="Lines.")
def logs(host: str, inventory: str, service: str, number: int | None, tail: int) -> None:
    """Show the last lines that the engine of a release on HOST logged."""
    service = service_name(service)
    (one, *more) = hosts.chosen(inventory, [host])
    if more:
        raise UsageError(f"{host} names {1 + len(more)} hosts; name one")
    from rollpin.places import release_dir
    from rollpin.planning import observe, remote_for

    with hosts.connected(one):
        release = _release(observe(one), service, number)
        args = (_container(release), release_dir(service, release.number), str(tail))
        answer = remote_for(one).run(_READ, args, within=60)
    if answer.status != 0:
        raise HostError(
            f"{one.name}: the log of {service} release {release.number} cannot be read:"
            f" {answer.output.strip()[-300:]}"
        )
    click.echo(f"{one.name}: {service} release {release.number} ({release.state})", err=True)
    click.echo(answer.output, nl=False)


def _release(state: HostState, service: str, number: int | None) -> Release:
    if isinstance(state.releases, Unknown):
        raise HostError(f"{state.name}: {state.releases.reason}")
    known = releases.of(state, service)
    found = [r for r in known if number in (None, r.number) and r.state != "staged"]
    if not found:
        numbers = ", ".join(str(r.number) for r in known) or "none"
        what = f"release {number} of {service}" if number else f"release of {service}"
        raise UsageError(f"{state.name}: there is no {what}; on record are: {numbers}")
    return found[-1]


def _container(release: Release) -> str:
    """The container that a release started; "" when its record does not tell."""
    starts = release.record.get("starts") or ()
    return next((str(s.get("id") or "") for s in starts if s.get("main")), "")
