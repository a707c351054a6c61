"""What SIGINT, SIGTERM and SIGHUP do to transactions under way.

The first one ends them by going back; a second one leaves that to the guard. pyinfra's own
handler exits 0, which would tell a timer that all is well.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.hub import get_hub

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal reached a transaction that goes forward. Carries the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Switchboard:
    def __init__(self) -> None:
        self.installed = False
        self.received = 0
        self.forward: set[Any] = set()
        self.staged = 0  # releases that wait for their transaction
        self.open: dict[Any, str] = {}  # greenlet -> how to follow it when it is left alone

    def install(self) -> None:
        if self.installed:
            return
        self.installed = True
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: object) -> None:
        name = signal.Signals(number).name
        if not self.open and not self.forward and not self.staged:
            _say(f"\nrollpin: {name}: nothing was stopped")
            os._exit(128 + number)
        if self.received:
            follow = "".join(f"\n    {text}" for text in self.open.values())
            _say(f"\nrollpin: {name} again: left to the guard{follow}")
            os._exit(128 + number)
        self.received = number
        for greenlet in list(self.forward):
            get_hub().loop.run_callback(greenlet.throw, Interrupted(number))
        _say(f"\nrollpin: {name}: going back (again: leave it to the guard)")


def _say(text: str) -> None:
    """To the terminal, which may be what went away: then nothing said later fails either."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)


_BOARD = _Switchboard()


def install() -> None:
    """Takes the three signals over, once, before anything is done on a host."""
    _BOARD.install()


def received() -> int:
    """The signal that was received, or 0."""
    return _BOARD.received


def staged(change: int) -> None:
    """So many more releases wait staged: a signal between two operations takes them back."""
    _BOARD.staged += change


@contextmanager
def interruptible(follow: str) -> Iterator[None]:
    """In the block a signal raises Interrupted. `follow`: what a person does to follow it."""
    me = gevent.getcurrent()
    if _BOARD.received:
        raise Interrupted(_BOARD.received)
    _BOARD.open[me] = follow
    _BOARD.forward.add(me)
    try:
        yield
    finally:
        _BOARD.forward.discard(me)
        _BOARD.open.pop(me, None)


@contextmanager
def going_back(follow: str) -> Iterator[None]:
    """In the block the first signal is done already, or is only noted: going back goes on."""
    me = gevent.getcurrent()
    _BOARD.open[me] = follow
    try:
        yield
    finally:
        _BOARD.open.pop(me, None)
