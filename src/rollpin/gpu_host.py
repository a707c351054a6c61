"""What a GPU host must be before anything is deployed on it: decided here, done elsewhere. Pure."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rollpin.errors import UsageError

USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
KEEPS_LOGS = ("", "json-file", "local")  # the drivers that know max-size and max-file


@dataclass(frozen=True)
class User:
    """A user of the host. `docker`: in that group, which is root by another name."""

    name: str
    docker: bool = False
    sudo: bool = False
    public_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class GpuHost:
    """The host wanted, as inventory data `gpu_host` says it.

    data_disk: where models and caches live; own_disk: it must not be on the root filesystem.
    """

    data_disk: str = "/data"
    own_disk: bool = True
    log_max_size: str = "100m"
    log_max_file: int = 5
    users: tuple[User, ...] = field(default=())


def from_data(data: object) -> GpuHost:
    """The inventory's dictionary as a GpuHost. Raises UsageError with every fault found."""
    faults: list[str] = []
    values = _fields(GpuHost, data, "gpu_host", faults)
    named = values.pop("users", {})
    users = []
    if not isinstance(named, Mapping):
        faults.append("gpu_host users: must be a dictionary, name -> what it may do")
        named = {}
    for name, what in named.items():
        if not USER.fullmatch(str(name)):
            faults.append(f"gpu_host users: {name!r} is no name for a user")
            continue
        given = _fields(User, what, f"gpu_host users {name}", faults, without=("name",))
        keys = given.pop("public_keys", ())
        users.append(User(str(name), public_keys=tuple([keys] if isinstance(keys, str) else keys),
                          **given))  # fmt: skip
    wanted = GpuHost(**values, users=tuple(users))
    if not str(wanted.data_disk).startswith("/"):
        faults.append(f"gpu_host data_disk: {wanted.data_disk!r} is no absolute path")
    if not re.fullmatch(r"[1-9][0-9]*[kmg]", str(wanted.log_max_size)):
        faults.append(f"gpu_host log_max_size: {wanted.log_max_size!r} is no size like 100m")
    if not isinstance(wanted.log_max_file, int) or wanted.log_max_file < 1:
        faults.append(f"gpu_host log_max_file: {wanted.log_max_file!r} is no number from 1 on")
    if faults:
        raise UsageError("\n".join(faults))
    return wanted


def _fields(
    kind: type[GpuHost] | type[User],
    data: object,
    where: str,
    faults: list[str],
    without: tuple[str, ...] = (),
) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        faults.append(f"{where}: must be a dictionary, not {data!r}")
        return {}
    known = {f.name: f for f in dataclasses.fields(kind) if f.name not in without}
    out: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0)
            faults.append(f"{where}: {key} is not known (nearest: {near[0]})")
        elif known[key].type == "bool" and not isinstance(value, bool):
            faults.append(f"{where} {key}: must be True or False, not {value!r}")
        else:
            out[key] = value
    return out


def with_log_limits(text: str | None, max_size: str, max_file: int) -> str | None:
    """daemon.json with the log limits merged in; None when it has them. Raises ValueError.

    Everything else in it stays. Limits that are there already are the host's own choice when they
    are at least there: they are replaced only where they differ.
    """
    try:
        config = json.loads(text) if text and text.strip() else {}
    except ValueError as e:
        raise ValueError(f"it is not JSON ({e}): correct it by hand first") from e
    if not isinstance(config, dict) or not isinstance(config.get("log-opts", {}), dict):
        raise ValueError("it is not an object with an object log-opts: correct it by hand first")
    driver = config.get("log-driver", "")
    if driver not in KEEPS_LOGS:
        raise ValueError(f"its log-driver {driver} knows no max-size: logs are limited elsewhere")
    opts = {**config.get("log-opts", {}), "max-size": max_size, "max-file": str(max_file)}
    if opts == config.get("log-opts"):
        return None
    return json.dumps({**config, "log-opts": opts}, indent=2) + "\n"


def flags_in_the_way(commands: Iterable[str]) -> str | None:
    """Why daemon.json must not name log-opts: dockerd refuses to start when a flag does too."""
    for command in commands:
        if not re.search(r"(^|/)dockerd\b", command):
            continue
        if "--log-opt" in command:
            return (
                "dockerd runs with --log-opt on its command line, and does not start when "
                "daemon.json names log-opts as well"
            )
        driver = re.search(r"--log-driver[= ](\S+)", command)
        if driver and driver[1] not in ("json-file", "local"):
            return (
                f"dockerd runs with --log-driver {driver[1]} on its command line, which may refuse"
                " log-opts that are meant for json-file"
            )
    return None


def disk_refusal(path: str, mount: str, options: str, own_disk: bool) -> str | None:
    """Why `path`, which lies on `mount`, cannot be the data disk; None when it can."""
    if own_disk and mount == "/":
        return (
            f"{path} lies on the root disk: models and caches would fill it. Mount a disk there,"
            ' or say "own_disk": False in the inventory\'s gpu_host'
        )
    words = options.split(",")
    if "noexec" in words:
        return f"{path} is mounted noexec ({mount}): compiled kernels in the caches cannot run"
    if "ro" in words:
        return f"{path} is mounted read-only ({mount})"
    return None
