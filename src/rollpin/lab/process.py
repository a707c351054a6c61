"""Long-running processes of a lab: found by what they are, never by a pattern of their name.

A process is ours when its program is one of those that a lab starts and one of its arguments
lies in the lab's folder; it is signalled only after its start time was compared again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollpin.errors import LabError

KTHREADD = 2  # parent of the kernel's own threads, which have no arguments at all
EXEC = 1.0  # seconds; an exec takes a fraction of a millisecond, longer on a busy machine
OURS = ("systemd-nspawn", "docker-registry", "unshare", "python")


@dataclass(frozen=True)
class Process:
    """A process of this machine; `started` (clock ticks since boot) tells a pid used again."""

    pid: int
    started: int
    argv: tuple[str, ...]

    def alive(self) -> bool:
        """False also for a zombie: it does nothing any more."""
        stat = _stat(self.pid)
        return stat is not None and stat[0] != "Z" and stat[2] == self.started

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it is still the one that we looked at."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def children(self) -> list[Process]:
        return [process for process in everyone() if _parent(process.pid) == self.pid]

    def wait_gone(self, deadline: float) -> bool:
        end = time.monotonic() + deadline
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and start time, or None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the program's name stands in parentheses and may hold anything
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[1]), int(fields[19])


def _parent(pid: int) -> int:
    stat = _stat(pid)
    return stat[1] if stat else 0


def look(pid: int) -> Process | None:
    """The process with that pid, or None.

    A process that is just becoming another program (exec) has no arguments for a moment; it is
    looked at again then, for it is neither gone nor somebody else.
    """
    end = time.monotonic() + EXEC
    while True:
        stat = _stat(pid)
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            return None
        if stat is None:
            return None
        if argv[:-1] or stat[0] == "Z" or KTHREADD in (pid, stat[1]) or time.monotonic() > end:
            return Process(pid, stat[2], tuple(argv[:-1]))


def everyone() -> list[Process]:
    """All processes that can be looked at now."""
    seen = (look(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [process for process in seen if process]


def of_folder(folder: Path) -> list[Process]:
    """The processes of a lab (or of one host): ours, with an argument inside `folder`."""
    inside = f"{folder}/"
    return [
        process
        for process in everyone()
        if process.argv
        and process.pid != os.getpid()
        and Path(process.argv[0]).name.startswith(OURS)
        and any(word.startswith(inside) or word == str(folder) for word in process.argv[1:])
    ]


def kill_folder(folder: Path, deadline: float = 10) -> None:
    """SIGKILL those processes; LabError names who is still there after `deadline` seconds."""
    end = time.monotonic() + deadline
    while left := [process for process in of_folder(folder) if process.alive()]:
        if time.monotonic() > end:
            raise LabError(f"These processes would not end: {[p.pid for p in left]}")
        for process in left:
            process.send(signal.SIGKILL)
        time.sleep(0.02)


def detach(argv: Sequence[str], log: Path) -> None:
    """Start a process that outlives us and is nobody's child here."""
    with log.open("ab") as sink:
        subprocess.run(
            ["setsid", "--fork", *argv],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd="/",
            check=True,
            timeout=10,
        )
