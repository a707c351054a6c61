"""How the engine ends: signals, drain, dead children. Exit codes as recorded.

A tree that kills itself sends itself SIGKILL and then exits 0: as PID 1 of a container, which
ignores its own SIGKILL, a crash therefore ends with status 0, and with 137 under `--init`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import NoReturn

from . import log
from .pipeline import Pipeline
from .server import Server


def kill_process_tree(pipeline: Pipeline | None) -> NoReturn:
    """SIGKILL for the children and this process, and exit 0 where that is ignored."""
    pid = os.getpid()
    log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
    if pipeline is not None:
        pipeline.kill()
    os.kill(pid, signal.SIGKILL)
    os._exit(0)


def on_child_failure(pipelines: list[Pipeline]) -> None:
    """Before the server is up: a child that fails sends SIGQUIT, and the tree goes at once."""

    def handler(_signal: int, _frame: FrameType | None) -> None:
        log.line("Received sigquit from a child process. It usually means the child failed.")
        kill_process_tree(pipelines[0] if pipelines else None)

    signal.signal(signal.SIGQUIT, handler)


class Ending:
    """Installs the handlers of a serving process and carries out what they ask."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.asked = threading.Event()
        self.interrupted = threading.Event()
        if "ignore-sigterm" not in server.knobs.faults:
            signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, self._on_sigint)
        threading.Thread(target=self._watch_children, daemon=True).start()

    def _on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        if self.server.frozen.is_set():
            return  # the event loop that would run the handler is blocked
        self.server.draining = True  # first: whoever reads the line may ask at once
        log.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.asked.set()

    def _on_sigint(self, _signal: int, _frame: FrameType | None) -> None:
        self.interrupted.set()
        self.asked.set()

    def wait(self) -> NoReturn:
        """Serve until a signal, drain if it was SIGTERM, exit 0."""
        # Handlers run in this thread only, and a signal that another thread was given does not
        # wake it.
        while not self.asked.wait(0.2):
            pass
        if not self.interrupted.is_set():
            self._drain()
        self._shut_down()

    def _drain(self) -> None:
        server, knobs = self.server, self.server.knobs
        if server.unhealthy:
            self.interrupted.wait(knobs.hung_stop)
            return
        self.interrupted.wait(knobs.drain)
        while not self.interrupted.is_set():
            left = server.running
            if not left or knobs.force_shutdown or server.unhealthy:
                log.line(
                    f"Gracefully exiting... Remaining number of requests {left}. "
                    "Remaining requests remaining_rids=[]."
                )
                return
            self.interrupted.wait(knobs.drain)

    def _shut_down(self) -> NoReturn:
        pid = os.getpid()
        log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
        self.server.frozen.set()
        self.server.pipeline.kill()
        log.uvicorn("Shutting down")
        log.uvicorn("Waiting for application shutdown.")
        log.uvicorn("Application shutdown complete.")
        log.uvicorn(f"Finished server process [{pid}]")
        os._exit(0)

    def _watch_children(self) -> None:
        pipeline, knobs = self.server.pipeline, self.server.knobs
        while not (dead := pipeline.dead()):
            time.sleep(min(1.0, knobs.crash / 5))
        if self.asked.is_set() and not self.server.draining:
            return
        name, process = dead
        log.line(
            f"Subprocess {name} (pid={process.pid}) crashed with exit code {process.returncode}. "
            "Triggering SIGQUIT for cleanup..."
        )
        log.line("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self.server.frozen.set()
        log.line(
            f"Sleeping {knobs.crash:g} seconds before crash diagnostics to let GPU activity settle."
        )
        time.sleep(knobs.crash)
        scheduler = pipeline.scheduler
        if scheduler.poll() is None:
            log.line(f"All pyspy dump attempts failed for PID {scheduler.pid}.")
            log.line(f"Waiting {knobs.coredump:.1f} seconds for CUDA coredumps before exiting.")
            time.sleep(knobs.coredump)
        else:
            log.line("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        kill_process_tree(pipeline)
