"""What the server knows of itself, shared by its threads."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from . import log, weights
from .args import ServerArgs
from .child import Message
from .knobs import Knobs
from .pipeline import Pipeline, Request

Status = Literal["Starting", "Up", "UnHealthy"]


@dataclass
class Server:
    args: ServerArgs
    config: dict[str, Any]
    knobs: Knobs
    pipeline: Pipeline
    command_line: str
    loaded: Message = field(default_factory=dict)
    status: Status = "Starting"
    draining: bool = False
    running: int = 0
    frozen: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def context(self) -> int:
        return int(self.args["context_length"] or weights.context_length(self.config))

    @property
    def unhealthy(self) -> bool:
        """A /health call has failed, and none has succeeded since."""
        return self.status == "UnHealthy"

    @property
    def lie(self) -> str | None:
        """How generations lie; never before the server is up, and never to /health."""
        return None if self.status == "Starting" else self.knobs.faults.lie

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Around a request that a drain waits for."""
        with self._lock:
            self.running += 1
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1

    def stay_silent_if_frozen(self) -> None:
        """A crashed or frozen server's event loop runs no more: nothing is ever answered."""
        if self.frozen.is_set():
            threading.Event().wait()

    def generate(
        self, prompt: str, limit: int, chat: bool = False, ignore_eos: bool = False
    ) -> Request:
        return self.pipeline.submit(
            op="generate",
            prompt=prompt,
            max=limit,
            chat=chat,
            ignore_eos=ignore_eos,
            garbage=self.lie == "garbage",
        )

    def ask_scheduler(self) -> Message:
        """How many requests run and wait. Hangs when the scheduler hangs."""
        request = self.pipeline.submit(op="info")
        return next(self.pipeline.answers(request))["info"]  # type: ignore[no-any-return]

    def healthy(self) -> bool:
        """One token through the whole pipeline; anybody's token will do. Sets `status`."""
        begun = time.monotonic()
        request = self.pipeline.submit(
            op="generate", prompt="1", max=1, chat=False, ignore_eos=True, garbage=False
        )
        try:
            while time.monotonic() < begun + self.knobs.health_timeout:
                time.sleep(self.knobs.health)
                self.stay_silent_if_frozen()
                if self.pipeline.last_received > begun:
                    self.status = "Up"
                    return True
        finally:
            self.pipeline.forget(request, finished=bool(self.pipeline.last_received > begun))
        self.status = "UnHealthy"
        log.line(
            "Health check failed. Server couldn't get a response from detokenizer for last "
            f"{self.knobs.health_timeout:g} seconds."
        )
        return False


def compact(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
