"""Log lines as SGLang writes them, each one `write` so that processes never mix inside a line.

All go to stderr (SGLang's access log goes to stdout): docker keeps the order within one stream.
"""

from __future__ import annotations

import contextlib
import os
import time


def raw(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads the log any more: serve on
        os.write(2, (text + "\n").encode())


def line(message: str, rank: str = "") -> None:
    """`[2026-11-30 20:33:58 PP0 TP1] message`."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    raw(f"[{stamp}{rank}] {message}")


def uvicorn(message: str, level: str = "INFO") -> None:
    line(f"{level + ':':<9} {message}")


def access(client: str, request: str, status: int, phrase: str) -> None:
    uvicorn(f'{client} - "{request} HTTP/1.1" {status} {phrase}')
