"""SIGINT, SIGTERM and SIGHUP in every phase: the host ends as it was, and the status is not 0.

Each test runs three controllers side by side, one for each signal, on the lab's three hosts.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from rollpin.lab.host import Host

from .controller import (
    STATE,
    Controller,
    as_it_was,
    await_on_host,
    frozen,
    furnished,
    gate,
    journal,
    look,
    release_file,
    side_by_side,
    untouched_since,
    without_image,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GOING_BACK = "going back"
# The engine's name for itself is the serving process of production.
ENGINE = "python3"


@dataclass(frozen=True)
class Phase:
    """`at` is entered once the controller is in the phase and left once it goes back."""

    name: str
    before: Callable[[Host], Any]  # what is held on the host from before the controller starts
    at: Callable[[Host, Controller, Any], Any]
    reached: str  # a line that the controller has said in this phase
    not_yet: str  # one that comes later
    touched: bool  # something may have been stopped
    data: dict[str, str] = field(default_factory=dict)
    engine: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def _nothing(host: Host) -> Any:
    return nullcontext()


def _line(text: str) -> Callable[[Host, Controller, Any], Any]:
    @contextmanager
    def at(host: Host, run: Controller, _: Any) -> Iterator[None]:
        run.wait_for(text)
        yield

    return at


def _gate(words: str) -> Callable[[Host], Any]:
    return lambda host: gate(host, words)


@contextmanager
def _held(host: Host, run: Controller, held: Any) -> Iterator[None]:
    held.reached()
    yield
    held.open()


@contextmanager
def _pulling(host: Host, run: Controller, _: Any) -> Iterator[None]:
    run.wait_for("pulling")
    with frozen(host, "dockerd"):
        yield


@contextmanager
def _silent_engine(host: Host) -> Iterator[None]:
    """Production is asked and says nothing: the baseline takes its time."""
    with frozen(host, ENGINE):
        yield


@contextmanager
def _asked(host: Host, run: Controller, _: Any) -> Iterator[None]:
    await_on_host(host, "ss -Hltn 'sport = :30000' | awk '{ exit !($2 > 0) }'", 60)
    yield


@contextmanager
def _deciding(host: Host, run: Controller, held: Any) -> Iterator[None]:
    """commit.sh is at work and has not decided; it goes on once the restore has."""
    held.reached()
    yield
    await_on_host(host, release_file("restoring"))
    held.open()


PHASES = [
    Phase(
        "connecting",
        frozen,
        _line("Connecting to hosts"),
        "Connecting to hosts",
        "] Connected",
        False,
    ),
    Phase(
        "preparing",
        _nothing,
        _line("Preparing operation files"),
        "Preparing operation files",
        "| Serve",
        False,
    ),
    Phase("observing", _gate("info --format {{json"), _held, "| Stage", "image:", False),
    Phase("pulling", without_image, _pulling, "pulling", "| Serve", False),
    Phase("creating", _gate("create --name"), _held, "image:", "| Serve", False),
    Phase("between the operations", _nothing, _line("| Serve"), "| Serve", "] baseline", False),
    Phase("baseline", _silent_engine, _asked, "| Serve", "] arming", False),
    Phase("arming", _nothing, _line("] arming"), "] arming", "] swapping", False),
    Phase("swapping", _gate("stop -t"), _held, "] swapping", "] waiting for", True),
    Phase(
        "waiting for ready",
        _nothing,
        _line("] waiting for"),
        "] waiting for",
        "] ready",
        True,
        engine={"ROLLPIN_LAB_FAULT": "slow:60"},
    ),
    Phase(
        "settling",
        _nothing,
        _line("] ready and generating"),
        "] ready and generating",
        "] live",
        True,
        data={"rollpin_settle": "60s"},
    ),
    Phase(
        "committing",
        _gate("update --restart unless-stopped"),
        _deciding,
        "] ready and generating",
        "] live",
        True,
    ),
]


def _rounds() -> Iterator[Any]:
    """Three phases a round, one on each host with a signal of its own. The second and third turn
    give every phase the other two signals.
    """
    for turn in range(3):
        for first in range(0, len(PHASES), 3):
            three = PHASES[first : first + 3]
            turned = three[turn:] + three[:turn]
            marks = [pytest.mark.slow] if turn else []
            words = [f"{p} {n.name}" for p, n in zip(turned, SIGNALS, strict=True)]
            yield pytest.param(turned, marks=marks, id=", ".join(words))


@pytest.mark.parametrize("phases", list(_rounds()))
def test_signal(all_hosts: list[Host], phases: list[Phase]) -> None:
    def hurt(host: Host) -> None:
        number = SIGNALS[all_hosts.index(host)]
        phase = phases[all_hosts.index(host)]
        before = furnished(host)
        since = untouched_since(host)
        with (
            phase.before(host) as held,
            Controller(host, engine=phase.engine, terminal=False, **phase.data) as run,
        ):
            with phase.at(host, run, held):
                run.send(number)
                run.wait_for(f"rollpin: {number.name}: ")
            status = run.end()
            assert status in (1, 128 + number)
            assert phase.reached in run.output
            assert phase.not_yet not in run.output
            if status == 1:
                words = ("restored",) if phase.touched else ("refused", "restored")
                assert run.word() in words
                assert f"interrupted by signal {number}" in run.verdict()
        as_it_was(host, before)
        if not phase.touched:
            assert untouched_since(host) == since

    side_by_side(all_hosts[:3], hurt)


@pytest.mark.slow
def test_signal_after_the_commit(all_hosts: list[Host]) -> None:
    """Decided is decided: the verdict is live, and the status still says that it was disturbed."""

    def hurt(host: Host) -> None:
        number = SIGNALS[all_hosts.index(host)]
        furnished(host)
        with Controller(host) as run:
            run.wait_for("] ready and generating")
            await_on_host(host, release_file("committed"))
            run.send(number)
            assert run.end() == 1
            assert run.word() == "live"
        assert journal(host)[-1]["event"] == "committed"
        assert [x for x in look(host) if " /glm53 running unless-stopped:" in x]

    side_by_side(all_hosts[:3], hurt)


@pytest.mark.slow
def test_second_signal_leaves_it_to_the_host(all_hosts: list[Host]) -> None:
    """The controller ends at once and says how to follow; the restore goes on by itself."""

    def hurt(host: Host) -> None:
        number = SIGNALS[all_hosts.index(host)]
        before = furnished(host)
        ident = next(x.split()[1] for x in before if " /glm53-pp4 " in x)
        with (
            gate(host, f"start {ident}") as held,
            Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:60"}) as run,
        ):
            run.wait_for("] waiting for")
            run.send(number)
            held.reached()
            run.send(signal.SIGINT)
            assert run.end(5) == 128 + signal.SIGINT
            assert "left to the guard" in run.output
            assert f"tail -f {STATE}/glm53/releases/" in run.output
            assert f"sudo sh {STATE}/RESTORE-glm53" in run.output
            held.open()
            as_it_was(host, before, 30)

    side_by_side(all_hosts[:3], hurt)


@pytest.mark.slow
def test_terminal_that_goes_away(all_hosts: list[Host]) -> None:
    """SIGHUP, and whatever is said from then on fails: the host is taken back all the same."""

    def hurt(host: Host) -> None:
        line = ("] waiting for", "] ready and generating", "] swapping")[all_hosts.index(host)]
        before = furnished(host)
        with Controller(host, terminal=True, rollpin_settle="60s", lease="10m") as run:
            run.wait_for(line)
            run.hang_up()
            assert run.end() == 1
            as_it_was(host, before)

    side_by_side(all_hosts[:3], hurt)
