"""The operations of the role gpu_host that pyinfra does not have. None of them touches dockerd."""

from __future__ import annotations

import io
import shlex
from collections.abc import Generator
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.operation import operation
from pyinfra.context import host
from pyinfra.facts.files import FileContents
from pyinfra.facts.server import Command, Processes
from pyinfra.operations import files

from rollpin.gpu_host import disk_refusal, flags_in_the_way, with_log_limits
from rollpin.observe import Unknown
from rollpin.planning import observe

DAEMON_JSON = "/etc/docker/daemon.json"

Commands = Generator[Any, None, None]


def _refuse(state: Any, host: Any, reason: str) -> bool:
    logger.error(f"{host.print_prefix}refused: {reason}")
    return False


def _say(state: Any, host: Any, text: str) -> bool:
    logger.info(f"{host.print_prefix}{text}")
    return True


@operation(_set_in_op=False)
def refused(reason: str) -> Commands:
    """
    This host fails here, with the reason; the preparation of the others goes on.

    + reason: what was found and what to do
    """
    yield FunctionCommand(_refuse, [reason], {})


@operation(_set_in_op=False)
def engine_answers() -> Commands:
    """
    A docker engine answers. It is never installed over, started or restarted from here.
    """
    engine = observe(host).engine
    if isinstance(engine, Unknown):
        reason = (
            f"no docker engine answers ({engine.reason}). Install or start it by hand; this role"
            " never does, for a restart of dockerd can end what is running"
        )
        yield FunctionCommand(_refuse, [reason], {})


@operation(_set_in_op=False)
def logs_limited(max_size: str, max_file: int) -> Commands:
    """
    daemon.json limits the logs of containers created from the next engine restart on.

    + max_size: of one log file, like 100m
    + max_file: how many are kept

    Merges `log-opts` and leaves everything else; never restarts the engine.
    """
    lines = host.get_fact(FileContents, path=DAEMON_JSON)
    text = None if lines is None else "\n".join(lines)
    try:
        wanted = with_log_limits(text, max_size, max_file)
    except ValueError as e:
        yield FunctionCommand(_refuse, [f"{DAEMON_JSON}: {e}"], {})
        return
    if wanted is None:
        return
    flags = flags_in_the_way(p["args"] for p in host.get_fact(Processes).values())
    if flags:
        yield FunctionCommand(_refuse, [f"{DAEMON_JSON} is left alone: {flags}"], {})
        return
    yield from files.put._inner(src=io.StringIO(wanted), dest=DAEMON_JSON, mode="644")
    text = (
        f"{DAEMON_JSON} limits logs to {max_file} files of {max_size}: counts for containers"
        " created after the next engine restart, which is yours to choose"
    )
    yield FunctionCommand(_say, [text], {})


@operation(_set_in_op=False)
def data_disk(path: str, own_disk: bool = True) -> Commands:
    """
    The directory ``path`` exists, on a disk that can carry models and compiled kernels.

    + path: for models and caches
    + own_disk: it must not lie on the root filesystem
    """
    look = (
        f"p={shlex.quote(path)}; "
        'while [ ! -e "$p" ] && [ "$p" != / ]; do p=$(dirname "$p"); done; '
        'findmnt -nro TARGET,OPTIONS -T "$p" | tail -n 1'
    )
    answer = host.get_fact(Command, command=look)
    mount, _, options = (answer or "").strip().partition(" ")
    reason = (
        disk_refusal(path, mount, options, own_disk)
        if mount
        else f"findmnt does not say where {path} lies"
    )
    if reason:
        yield FunctionCommand(_refuse, [reason], {})
        return
    yield from files.directory._inner(path=path)
