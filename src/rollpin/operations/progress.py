"""Byte progress of a pull: a bar on a terminal, a quiet line now and then elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from pyinfra import logger

from rollpin.docker_api import Progress

STEP = 0.25  # elsewhere: a line each quarter
_MB = 1e6


class PullProgress:
    """Told of a pull's progress; says it."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.terminal = sys.stderr.isatty()
        self.said = 0.0

    def __enter__(self) -> PullProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.terminal and self.said:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def update(self, progress: Progress) -> None:
        if not progress.total:
            return
        share = progress.done / progress.total
        done, total = progress.done / _MB, progress.total / _MB
        text = f"{done:.0f} of {total:.0f} MB, {progress.layers} layer(s)"
        if self.terminal:
            self.said = share or 0.01
            sys.stderr.write(f"\r\033[K{self.host.print_prefix}pulling: {text} ({share:.0%})")
            sys.stderr.flush()
        elif share >= self.said + STEP or (share == 1 and self.said < 1):
            self.said = share
            logger.info(f"{self.host.print_prefix}pulling: {text}")
