"""What a child process of the engine does to itself: name, parent, pipes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """As SGLang's children: SIGKILL when the main process goes, however it goes."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def show_context(title: str) -> None:
    """Set the process's short name, which the lab's nvidia-smi takes for a CUDA context."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/comm").write_text(title[:15])


def command(title: str, module: str, **facts: object) -> list[str]:
    """The argv of a child: its title first, as setproctitle would leave it, then readable facts."""
    return [title, "-S", "-m", f"sglang.{module}", *(f"--{k}={v}" for k, v in facts.items())]


def environment() -> dict[str, str]:
    """The child finds this package and Python's home although its argv[0] is a title."""
    here = str(pathlib.Path(__file__).resolve().parent.parent)
    return {**os.environ, "PYTHONPATH": here, "PYTHONHOME": sys.base_prefix}


class Lines:
    """JSON lines out of a descriptor, whole lines only."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.rest = b""
        self.closed = False

    def read(self) -> list[bytes]:
        """What has arrived; blocks when nothing has. Sets `closed` at the end of the pipe."""
        data = os.read(self.descriptor, 1 << 16)
        self.closed = not data
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines


def send(descriptor: int, data: bytes) -> bool:
    """Write all of one line; False when nobody reads any more."""
    view = memoryview(data + b"\n")
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        return False
    return True


Message = dict[str, Any]
