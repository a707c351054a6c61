"""`rollpin lab up`: from nothing, from a healthy lab, or from what a killed run left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rollpin.errors import LabError, RollpinError, UsageError
from rollpin.lab import base, dress, furnish, images, machine, network, power, registry, state
from rollpin.lab.host import Host, hosts
from rollpin.lab.state import Lab, Seat

# Hosts are not alike, as in life; more than three hosts begin again.
KINDS = (("bookworm", "classic"), ("trixie", "cdi"), ("trixie", "containerd"))
MOST = 99  # a host's name is part of an interface name of at most 15 characters

Say = Callable[[str], None]


class Steps:
    """Says what is being done, and how many seconds into the run it was done."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} s  {text}")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        began = time.monotonic()
        self.note(f"{text} …")
        yield
        self.note(f"{text}: done in {time.monotonic() - began:.1f} s")


def up(name: str, count: int | None = None, say: Say = print) -> Lab:
    """Bring the lab up with `count` hosts; over a healthy lab it does nothing and says so.

    Without `count` it keeps the hosts that it has; a new lab has 3.

    Raises LabError when this machine cannot carry a lab or a host does not come up, UsageError
    when the lab stands with more hosts than asked for.
    """
    if count is not None and not 1 <= count <= MOST:
        raise UsageError(f"A lab has 1 to {MOST} hosts, not {count}.")
    steps = Steps(say)
    for package in machine.prepare():
        steps.note(f"installed {package}")
    with state.locked(state.directory(name)):
        lab = settle(name, count)
        _base_trees(lab, steps)
        network.up(lab)
        for seat in lab.seats:
            dress.make(lab, seat)
        dress.write_known_hosts(lab)
        booted = [seat.name for seat in lab.seats if power.on(lab, seat.name)]
        if booted:
            steps.note(f"booting {', '.join(booted)}")
        if registry.up(lab):
            steps.note(f"registry on {lab.registry}")
        digests = images.publish(lab)
        changed = digests != lab.images
        lab = lab.with_images(digests)
        if changed:
            steps.note("images pushed; every host runs them from anew")
        _furnish(lab, steps, anew=changed)
        # after the hosts: a run that ends before brings them up anew the next time
        state.save(lab)
        what = "is up" if booted or changed else "was up, nothing to do"
        steps.note(f"lab {name} {what}: {len(lab.seats)} hosts on {lab.subnet}")
    return lab


def settle(name: str, count: int | None) -> Lab:
    """Decide (or remember) the lab's subnet and hosts, and write them down."""
    state.directory(name).mkdir(parents=True, exist_ok=True)
    # other labs must see the subnet before they choose theirs
    with state.locked(state.STATE):
        if state.exists(name):
            lab = state.load(name)
            count = count or len(lab.seats)
            if len(lab.seats) > count:
                raise UsageError(
                    f"The lab {name!r} is up with {len(lab.seats)} hosts; to have {count}, "
                    "run `rollpin lab down` first."
                )
        else:
            others = [other.subnet for other in state.all_labs()]
            subnet = network.choose([*network.routed(), *others])
            lab = Lab(name, network.bridge_name(name), str(subnet), str(subnet[1]), ())
            # interfaces and processes that a killed run left without its lab.json
            _sweep(name)
        seats = tuple(_seat(lab, number) for number in range(count or 3))
        lab = Lab(lab.name, lab.bridge, lab.subnet, lab.gateway, seats, lab.images)
        public = lab.key.with_suffix(".pub")
        if not (lab.key.exists() and public.exists()):
            lab.key.unlink(missing_ok=True)
            public.unlink(missing_ok=True)
            machine.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"rollpin lab {name}",
                 "-f", str(lab.key)]
            )  # fmt: skip
        state.save(lab)
    return lab


def _seat(lab: Lab, number: int) -> Seat:
    suite, engine = KINDS[number % len(KINDS)]
    network_part = lab.subnet.rsplit(".", 1)[0]
    address = f"{network_part}.{network.FIRST_HOST + number}"
    return Seat(f"lab{number + 1}", address, suite, engine)


def _sweep(name: str) -> None:
    from rollpin.lab import down

    down.sweep(name)


def _base_trees(lab: Lab, steps: Steps) -> None:
    """Build what the cache lacks, two at a time."""
    recipes = [base.HOSTS[suite] for suite in dict.fromkeys(seat.suite for seat in lab.seats)]
    missing = [recipe for recipe in [*recipes, base.IMAGE] if not recipe.tree.exists()]

    def build(recipe: base.Recipe) -> None:
        with steps.step(f"base tree {recipe.name}"):
            base.build(recipe)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build, missing))


def _furnish(lab: Lab, steps: Steps, *, anew: bool) -> None:
    """Wait for every host and stand its containers up, all hosts side by side."""

    def one(host: Host) -> str | None:
        began = time.monotonic()
        try:
            host.wait_up(docker=False)
            # does nothing when it runs, waits when it is about to
            host.run(["systemctl", "start", "docker.service"])
            standing = host.container(furnish.PRODUCTION)
            if standing is None:
                furnish.furnish(host)
            elif anew:
                furnish.reset(host)
            else:
                # stopped is a deploy's doing and none of our business
                if standing["State"]["Running"]:
                    furnish.wait_healthy(host)
                return None
        except RollpinError as error:
            return str(error)
        steps.note(f"{host.name} serves ({time.monotonic() - began:.1f} s)")
        return None

    if not furnish.SMI.exists():
        steps.note(f"no nvidia-smi on the hosts: {furnish.SMI} is not there")
    with ThreadPoolExecutor(max_workers=len(lab.seats)) as pool:
        failures = [failure for failure in pool.map(one, hosts(lab)) if failure]
    if failures:
        raise LabError("The lab is not whole. " + " ".join(failures))
