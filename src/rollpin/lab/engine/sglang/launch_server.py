"""`python3 -m sglang.launch_server …`: the story of a start, from the command line to serving."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from typing import NoReturn

from . import args, knobs, lifecycle, log, weights
from .pipeline import Pipeline

STARTUP_FAILURE = 3  # uvicorn's


def main(argv: list[str]) -> NoReturn:
    begun = time.monotonic()
    settings = knobs.read()
    if "ignore-sigterm" in settings.faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log.raw(
        f"{__file__}:71: UserWarning: 'python -m sglang.launch_server' is still supported, but "
        "'sglang serve' is the recommended entrypoint.\n"
        "  Example: sglang serve --model-path <model> [options]"
    )
    asked = args.parse(argv)
    config = weights.read_config(asked["model_path"], asked["json_model_override_args"])
    resolved = args.resolve(asked, config)
    log.line(f"server_args={resolved}")
    log.line("Using default HuggingFace chat template with detected content format: string")

    pipelines: list[Pipeline] = []
    lifecycle.on_child_failure(pipelines)
    _sleep_until(begun + settings.load * 0.25)
    context = resolved["context_length"] or weights.context_length(config)
    pipelines.append(Pipeline(resolved, context, weights.architectures(config)[0]))

    from .server import Server  # noqa: I001  imported while the scheduler loads: 60 ms
    from . import http_server, warmup

    server = Server(resolved, config, settings, pipelines[0], shlex.join(argv))
    server.loaded = pipelines[0].wait_ready()
    server.loaded["seconds"]["tokenizer_e2e"] = time.monotonic() - begun
    seconds = server.loaded["seconds"]
    timings = ", ".join(f"{k}={v:.2f}" for k, v in seconds.items() if isinstance(v, float))
    log.line(f"Engine startup timings (s): {timings}")
    log.uvicorn(f"Started server process [{os.getpid()}]")
    log.uvicorn("Waiting for application startup.")
    warm_up = threading.Thread(target=warmup.run, args=[server], daemon=True)
    warm_up.start()
    log.uvicorn("Application startup complete.")

    host, port = resolved["host"], resolved["port"]
    try:
        listener = http_server.HTTPServer(server)
    except OSError as error:
        log.uvicorn(
            f"[Errno {error.errno}] error while attempting to bind on address {(host, port)!r}: "
            f"{os.strerror(error.errno or 0).lower()}",
            "ERROR",
        )
        _fail_to_bind(warm_up, pipelines[0])
    ending = lifecycle.Ending(server)
    log.uvicorn(f"Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    ending.wait()


def _fail_to_bind(warm_up: threading.Thread, pipeline: Pipeline) -> NoReturn:
    """Wait for the warm-up, which asks whoever has the port; two seconds later exit 3."""
    log.uvicorn("Waiting for application shutdown.")
    warm_up.join()
    time.sleep(2)
    log.uvicorn("Application shutdown complete.")
    pipeline.kill()
    sys.exit(STARTUP_FAILURE)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1:])
