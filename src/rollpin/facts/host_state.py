"""The one fact: everything a plan needs to know about a host, in one round trip."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from importlib.resources import files

from pyinfra.api.facts import FactBase
from typing_extensions import override

from rollpin.observe import HostState as State
from rollpin.observe import unreachable
from rollpin.observe_parse import parse_host_state
from rollpin.places import RUN_DIR, STATE_DIR


def observe_script(
    service: str = "",
    image: str = "",
    paths: Iterable[str] = (),
    idle: Iterable[str] = (),
    diffs: Iterable[str] = (),
) -> str:
    """The observing script. Every value is quoted; it changes nothing on the host."""
    values = {
        "SERVICE": service,
        "STATE": STATE_DIR,
        "RUN": RUN_DIR,
        "IMAGE": image,
        "PATHS": "\n".join(paths),
        "IDLE": " ".join(idle),
        "DIFFS": " ".join(diffs),
    }
    head = "\n".join(f"{k}={shlex.quote(v)}" for k, v in values.items())
    body = files("rollpin").joinpath("shell/observe.sh").read_text(encoding="utf-8")
    return f"{head}\n{body}"


class HostState(FactBase[State]):
    """Engine, containers, image, GPUs and who is on them, listeners, disks, releases, transaction.

    service: whose journal to read; image: the reference to look for locally; paths: whose
    filesystems to measure; idle: names of the containers whose last log line decides; diffs: of
    those of which it is asked what they wrote into themselves.
    A host that does not answer yields a state in which everything is unknown.
    """

    def command(
        self,
        service: str = "",
        image: str = "",
        paths: Sequence[str] = (),
        idle: Sequence[str] = (),
        diffs: Sequence[str] = (),
    ) -> str:
        return observe_script(service, image, paths, idle, diffs)

    @override
    @staticmethod
    def default() -> State:
        return unreachable("", "the host gave no answer")

    @override
    def process(self, output: list[str]) -> State:
        return parse_host_state(output)
