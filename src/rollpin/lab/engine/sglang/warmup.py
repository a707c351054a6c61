"""The server's own first request, and what happens when it is ready.

It goes to 127.0.0.1:port, whoever listens there: when the port belongs to another SGLang, that one
answers, and this one believes itself ready.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading

from . import lifecycle, log
from .server import Server

TRIES = 120


def run(server: Server) -> None:
    """In a thread of its own. Ends with the server ready, or with its tree killed."""
    faults = server.knobs.faults
    try:
        _wait_until_answered(server)
        if "never-ready" in faults:
            return
        _ask(server, "POST", "/generate", WARM_UP)
        _ask(server, "POST", "/freeze_gc", {})
    except (OSError, http.client.HTTPException, AssertionError) as error:
        log.line(f"Initialization failed. warmup error: {error!r}")
        lifecycle.kill_process_tree(server.pipeline)
    server.status = "Up"
    log.line("The server is fired up and ready to roll!")
    _arm(faults.after("hang"), lambda: server.pipeline.scheduler.send_signal(signal.SIGSTOP))
    _arm(faults.after("freeze"), server.frozen.set)
    _arm(faults.seconds("crash-after"), server.pipeline.scheduler.kill)


WARM_UP = {
    "text": "The capital city of France is",
    "sampling_params": {"temperature": 0, "max_new_tokens": 8},
}


def _wait_until_answered(server: Server) -> None:
    pause = threading.Event()
    for attempt in range(TRIES):
        pause.wait(server.knobs.warmup if attempt == 0 else max(server.knobs.warmup, 0.1))
        try:
            return _ask(server, "GET", "/model_info", None)
        except (OSError, http.client.HTTPException, AssertionError):
            if attempt == TRIES - 1:
                raise
    return None


def _ask(server: Server, method: str, path: str, body: object) -> None:
    host = server.args["host"]
    host = "127.0.0.1" if host in ("", "0.0.0.0") else host  # noqa: S104
    timeout = float(os.environ.get("SGLANG_WARMUP_TIMEOUT", "600"))
    connection = http.client.HTTPConnection(host, server.args["port"], timeout=timeout)
    headers = {"Content-Type": "application/json"}
    if server.args["api_key"]:
        headers["Authorization"] = f"Bearer {server.args['api_key']}"
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise AssertionError(f"res={answer.status}, {text[:200]!r}")
    finally:
        connection.close()


def _arm(seconds: float | None, fault: object) -> None:
    if seconds is not None:
        timer = threading.Timer(seconds, fault)  # type: ignore[arg-type]
        timer.daemon = True
        timer.start()
