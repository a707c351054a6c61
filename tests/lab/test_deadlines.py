"""Every sshd of the host stands still, at each step: the run ends in time, and says how.

The bounds are those of docs/deadlines.md, for the lease of these runs. The wait costs no processor
time, so three steps are tried side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from rollpin.lab.host import Host

from .controller import (
    Controller,
    as_it_was,
    await_look,
    await_on_host,
    frozen,
    furnished,
    gate,
    look,
    release_file,
    side_by_side,
    without_image,
)

LEASE = 5.0
PATIENCE = max(LEASE, 15)
INSISTENCE = max(2 * LEASE, 30)
TRY = 20.0  # the last try may begin right before the time is up
BACK = INSISTENCE + TRY
SLACK = 10.0


@dataclass(frozen=True)
class Step:
    """`at` returns once the run is in the step."""

    name: str
    bound: float
    words: tuple[str, ...]  # verdicts that it may end with; none when no operation was begun
    before: Callable[[Host], Any]
    at: Callable[[Host, Controller, Any], None]
    engine: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def _nothing(host: Host) -> Any:
    return nullcontext()


def _line(text: str) -> Callable[[Host, Controller, Any], None]:
    def at(host: Host, run: Controller, held: Any) -> None:
        run.wait_for(text)

    return at


def _gate(words: str) -> Callable[[Host], Any]:
    return lambda host: gate(host, words)


@contextmanager
def _gated_production(host: Host) -> Iterator[Any]:
    """Holds the restore where it starts production again."""
    ident = next(x.split()[1] for x in look(host) if " /glm53-pp4 " in x)
    with gate(host, f"start {ident}") as held:
        yield held


def _held(host: Host, run: Controller, held: Any) -> None:
    held.reached()


UNTOUCHED = ("refused",)
AFTER_ARMING = ("in doubt", "restored", "restored, unverified")
NEVER_READY = {"ROLLPIN_LAB_FAULT": "slow:600"}

STEPS = [
    Step("connecting", 40, (), frozen, _line("Connecting to hosts")),
    Step(
        "swapping",
        PATIENCE + TRY + BACK,
        AFTER_ARMING,
        _gate("stop -t 120"),
        _held,
    ),
    Step(
        "waiting for ready",
        PATIENCE + TRY + BACK,
        AFTER_ARMING,
        _nothing,
        _line("] waiting for"),
        engine=NEVER_READY,
    ),
    # slow from here on
    Step("observing", 90 + 60, UNTOUCHED, _gate("info --format {{json"), _held),
    Step("arming", 60 + 90 + BACK, ("refused", *AFTER_ARMING), _nothing, _line("] arming")),
    Step(
        "settling",
        PATIENCE + TRY + BACK,
        AFTER_ARMING,
        _nothing,
        _line("] ready and generating"),
        data={"rollpin_settle": "600s"},
    ),
    Step(
        "committing",
        120 + TRY + BACK,
        ("live", *AFTER_ARMING),
        _gate("update --restart unless-stopped"),
        _held,
    ),
    Step(
        "restoring",
        90 + BACK,
        AFTER_ARMING,
        _gated_production,
        _held,
        engine={"ROLLPIN_LAB_FAULT": "crash-load"},
    ),
    Step("pulling", 150, UNTOUCHED, without_image, _line("] pulling")),
    Step("staging", 400 + 60 + TRY, UNTOUCHED, _gate("create --name"), _held),
]


def _rounds() -> Iterator[Any]:
    for first in range(0, len(STEPS), 3):
        three = STEPS[first : first + 3]
        yield pytest.param(three, id=", ".join(map(str, three)))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("steps", list(_rounds()))
def test_frozen_host(all_hosts: list[Host], steps: list[Step]) -> None:
    def hurt(host: Host) -> None:
        step = steps[all_hosts.index(host)]
        before = furnished(host)
        with (
            step.before(host) as held,
            Controller(
                host, engine=step.engine, terminal=False, lease=f"{LEASE:g}s", **step.data
            ) as run,
        ):
            step.at(host, run, held)
            with nullcontext() if step.before is frozen else frozen(host):
                began = time.monotonic()
                if held is not None:
                    held.open()
                assert run.end(step.bound + SLACK + 60) != 0
                took = time.monotonic() - began
            if step.words:
                assert run.word() in step.words
            assert took < step.bound + SLACK, f"{step} ended after {took:.0f} s, not {step.bound:g}"
        _ends_whole(host, before)

    side_by_side(all_hosts[: len(steps)], hurt)


def _ends_whole(host: Host, before: list[str]) -> None:
    """Live or as it was; what was only staged waits for the next run to clear it."""
    await_on_host(host, f"! {release_file('armed')} && ! {release_file('restoring')}", 60)
    if host.run(release_file("committed"), check=False).status == 0:
        assert [x for x in look(host) if " /glm53 running unless-stopped:" in x]
        return
    staged = [x for x in look(host) if " /glm53.r" in x or x.startswith(("tag ", "release "))]
    if staged:
        assert all(" created " in x for x in staged if x.startswith("container "))
        # who held the lock last, and is dead; the next run writes over it
        holder = [x for x in look(host) if x == "file /run/rollpin/holder"]
        await_look(host, sorted([*before, *staged, *holder]), 30)
    else:
        as_it_was(host, before, 30)
