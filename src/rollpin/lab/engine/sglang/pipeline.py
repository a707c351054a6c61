"""The server's side of its children: start them, ask them, watch them."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import child, gpus
from .args import ServerArgs, ranks
from .child import Message


@dataclass
class Request:
    """A request under way, and what has been said about it."""

    rid: str
    answers: queue.SimpleQueue[Message] = field(default_factory=queue.SimpleQueue)


class Pipeline:
    def __init__(self, args: ServerArgs, context: int, architecture: str) -> None:
        self.pending: dict[str, Request] = {}
        self.last_received = 0.0
        self._lock = threading.Lock()
        to_scheduler, tokens, answers = os.pipe(), os.pipe(), os.pipe()
        fcntl.fcntl(to_scheduler[1], fcntl.F_SETPIPE_SZ, 1 << 20)  # a hung scheduler reads nothing
        self.scheduler = self._spawn(
            child.command(
                "sglang::scheduler",
                "scheduler",
                gpus=gpus.visible(),
                ranks=len(ranks(args)),
                mem_fraction=args["mem_fraction_static"],
            ),
            to_scheduler[0],
            tokens[1],
        )
        self.detokenizer = self._spawn(
            child.command("sglang::detokenizer", "detokenizer"), tokens[0], answers[1]
        )
        self._input = to_scheduler[1]
        self._output = answers[0]
        order = {"args": args, "context": context, "architecture": architecture}
        self._ready = Request("ready")
        self.pending["ready"] = self._ready
        threading.Thread(target=self._receive, daemon=True).start()
        child.send(self._input, json.dumps(order).encode())

    @staticmethod
    def _spawn(argv: list[str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            argv,
            executable=sys.executable,
            stdin=stdin,
            stdout=stdout,
            env=child.environment(),
        )
        os.close(stdin)
        os.close(stdout)
        return process

    def wait_ready(self) -> Message:
        """What the scheduler reports when it has loaded. Raises RuntimeError when it died."""
        while True:
            try:
                return self._ready.answers.get(timeout=0.1)
            except queue.Empty:
                code = self.scheduler.poll()
                if code is not None:
                    raise RuntimeError(
                        f"Rank 0 scheduler died during initialization (exit code: {code}). If exit "
                        "code is -9, a common cause is the OS OOM killer. Run `dmesg -T | grep -i "
                        "oom` to check."
                    ) from None

    def submit(self, **order: object) -> Request:
        request = Request(f"{random.getrandbits(128):032x}")
        self.pending[request.rid] = request
        self._tell(rid=request.rid, **order)
        return request

    def answers(self, request: Request) -> Iterator[Message]:
        """Everything said about a request, to its end; waits for ever, as SGLang does."""
        finished = False
        try:
            while not finished:
                message = request.answers.get()
                finished = bool(message.get("finish"))
                yield message
        finally:
            self.forget(request, finished)

    def forget(self, request: Request, finished: bool = False) -> None:
        if self.pending.pop(request.rid, None) and not finished:
            self._tell(op="abort", rid=request.rid)

    def dead(self) -> tuple[str, subprocess.Popen[bytes]] | None:
        """The first child that has ended, or None."""
        children = (("scheduler_0", self.scheduler), ("detokenizer", self.detokenizer))
        return next(((name, c) for name, c in children if c.poll() is not None), None)

    def kill(self) -> None:
        for process in (self.scheduler, self.detokenizer):
            process.kill()
            process.wait()

    def _tell(self, **message: object) -> None:
        with self._lock:
            child.send(self._input, json.dumps(message).encode())

    def _receive(self) -> None:
        lines = child.Lines(self._output)
        while not lines.closed:
            for line in lines.read():
                message = json.loads(line)
                self.last_received = time.monotonic()
                request = self.pending.get(message["rid"])
                if request is not None:
                    request.answers.put(message)
