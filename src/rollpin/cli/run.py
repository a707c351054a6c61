"""Runs one of rollpin's operations as pyinfra does from a deploy file: its prompt and statuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def operation_argv(
    name: str,
    arguments: Sequence[str],
    inventory: str,
    limit: Sequence[str],
    data: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> list[str]:
    """The command line: `name` is `module.function` below rollpin.operations."""
    argv = [sys.executable, "-m", "pyinfra", *flags, inventory, f"rollpin.operations.{name}"]
    argv += arguments
    for host in limit:
        argv += ["--limit", host]
    for item in data:
        argv += ["--data", item]
    return argv


def run_operation(
    name: str,
    arguments: Sequence[str],
    inventory: str,
    limit: Sequence[str],
    data: Sequence[str] = (),
    flags: Sequence[str] = (),
) -> None:
    """Becomes that pyinfra: signals and the exit status are its own. Does not return."""
    argv = operation_argv(name, arguments, inventory, limit, data, flags)
    sys.stdout.flush()
    os.execv(argv[0], argv)  # noqa: S606 - no shell: every word is one argument
