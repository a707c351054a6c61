"""One lab engine under test: a real process, what it logged, and a way to ask it."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rollpin.lab.engine

ENGINE = Path(rollpin.lab.engine.__file__).parent
RECIPE = shlex.split(
    "--tp-size 2 --pp-size 4 --mem-fraction-static 0.85 --max-running-requests 48 "
    "--disable-radix-cache --disable-shared-experts-fusion "
    "--moe-runner-backend flashinfer_cutlass --disable-custom-all-reduce "
    "--chunked-prefill-size 16384 --host 127.0.0.1 "
    """--json-model-override-args '{"index_topk_freq": 4}'"""
)
FAST = {"LOAD": "0.1", "COLD": "0.1", "WARMUP": "0.1", "HEALTH": "0.05", "DRAIN": "0.1"}
FAST |= {"CRASH": "0.2", "HUNG_STOP": "0.2"}
READY = "The server is fired up and ready to roll!"
QUESTION = "What is 7 times 6? Answer with the number only."
PATIENCE = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """One engine under test: its process, what it logged, and a way to ask it."""

    def __init__(
        self,
        model: Path,
        home: Path,
        *flags: str,
        port: int = 0,
        wrapper: tuple[str, ...] = (),
        **env: str,
    ) -> None:
        self.port = port or free_port()
        self.lines: list[str] = []
        self.news = threading.Condition()
        environment = {f"ROLLPIN_LAB_{name}_SECONDS": value for name, value in FAST.items()}
        environment |= {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ENGINE)}
        argv = ["--model-path", str(model), *RECIPE, "--port", str(self.port), *flags]
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "sglang.launch_server", *argv],
            env=environment | env,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                with self.news:
                    self.lines.append(line.rstrip("\n"))
                    self.news.notify_all()

    def wait(self, text: str = READY) -> str:
        def found() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self.news:
            self.news.wait_for(found, PATIENCE)
        line = found()
        assert line is not None, "\n".join([f"no {text!r} in:", *self.lines])
        return line

    def exit_code(self) -> int:
        code = self.process.wait(PATIENCE)
        self.reader.join()
        return code

    def log(self) -> str:
        return "\n".join(self.lines)

    def ask(
        self, path: str, body: object = None, key: str | None = None, timeout: float = PATIENCE
    ) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            text = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, text, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def json(self, path: str, body: object = None) -> Any:
        status, text = self.ask(path, body)
        assert status == 200, text
        return json.loads(text)

    def chat(self, prompt: str, **more: object) -> tuple[int, str]:
        messages = [{"role": "user", "content": prompt}]
        return self.ask("/v1/chat/completions", {"model": "m", "messages": messages, **more})

    def end(self) -> None:
        self.process.kill()
        self.exit_code()


Start = Callable[..., Engine]
