"""The scheduler process: loads, then decodes one token per step for every running request.

Speaks JSON lines: requests arrive on stdin from the server, tokens leave on stdout through the
detokenizer. One process stands for all ranks.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from . import child, knobs, log, model, startup
from .args import rank_prefix


@dataclass
class Running:
    rid: str
    tokens: Iterator[str]
    left: int
    ignore_eos: bool
    last: str = " "


class Scheduler:
    def __init__(self, step: float, limit: int, prefix: str) -> None:
        self.step = step
        self.limit = limit
        self.prefix = prefix
        self.requests: dict[str, Running] = {}
        self.steps = 0

    def serve(self, lines: child.Lines) -> None:
        """Until the server closes the pipe."""
        due = 0.0
        while not lines.closed:
            wait = max(0.0, due - time.monotonic()) if self.requests else None
            if select.select([lines.descriptor], [], [], wait)[0]:
                for line in lines.read():
                    self._receive(json.loads(line))
            if self.requests and time.monotonic() >= due:
                due = time.monotonic() + self.step
                self._decode()

    def _receive(self, message: child.Message) -> None:
        rid = message["rid"]
        if message["op"] == "info":
            running = min(len(self.requests), self.limit)
            queued = len(self.requests) - running
            self._reply(rid, info={"running": running, "queued": queued}, finish="stop")
        elif message["op"] == "abort":
            self.requests.pop(rid, None)
        else:
            prompt = message["prompt"]
            tokens = model.tokens(prompt, message["chat"])
            if message["garbage"]:
                tokens = itertools.repeat(model.GARBAGE)
            self.requests[rid] = Running(rid, tokens, message["max"], message["ignore_eos"])
            log.line(
                f"Prefill batch, #new-seq: 1, #new-token: {model.count_tokens(prompt)}, "
                "#cached-token: 0, token usage: 0.00, "
                f"#running-req: {len(self.requests) - 1}, #queue-req: 0, #pending-token: 0, "
                "cuda graph: False",
                self.prefix,
            )

    def _decode(self) -> None:
        self.steps += 1
        batch = list(itertools.islice(self.requests.values(), self.limit))
        if self.steps % 40 == 0:
            log.line(
                f"Decode batch, #running-req: {len(batch)}, token usage: 0.00, cuda graph: True, "
                f"gen throughput (token/s): {len(batch) / max(self.step, 1e-3):.2f}, "
                f"#queue-req: {len(self.requests) - len(batch)}",
                self.prefix,
            )
        for request in batch:
            token = next(request.tokens, None)
            if token is None and not request.ignore_eos:
                self._finish(request, None, "stop")
                continue
            request.last = token or request.last
            request.left -= 1
            if request.left <= 0:
                self._finish(request, request.last, "length")
            else:
                self._reply(request.rid, token=request.last)

    def _finish(self, request: Running, token: str | None, reason: str) -> None:
        del self.requests[request.rid]
        self._reply(request.rid, token=token, finish=reason)

    def _reply(self, rid: str, **fields: object) -> None:
        child.send(1, json.dumps({"rid": rid, **fields}).encode())


def main() -> None:
    child.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the server's to handle
    lines = child.Lines(0)
    first: list[bytes] = []
    while not first:
        first = lines.read()
        if lines.closed:
            return
    order = json.loads(first[0])
    args, settings = order["args"], knobs.read()
    prefix = rank_prefix(args, 0, 0)
    # kept to the end: with it go the sockets that are the GPUs' memory
    loading = startup.Startup(args, settings, order["context"], order["architecture"])
    try:
        loaded = loading.run()
    except Exception:
        log.line(f"Scheduler hit an exception: {traceback.format_exc()}", prefix)
        os.kill(os.getppid(), signal.SIGQUIT)
        time.sleep(60)  # the server kills its tree, this process with it
        return
    child.send(1, json.dumps({"rid": "ready", **vars(loaded)}).encode())
    limit = args["max_running_requests"] or 48
    Scheduler(settings.token, limit, prefix).serve(lines)


if __name__ == "__main__":
    main()
