"""The fact's output as a HostState. Pure; never raises: what is not understood is Unknown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from rollpin.observe import (
    Container,
    Disk,
    Engine,
    Gpu,
    GpuApp,
    HostState,
    Image,
    Listener,
    Release,
    Transaction,
    Unknown,
    unreachable,
)
from rollpin.observe_starters import starters
from rollpin.record import fault

T = TypeVar("T")

SECTION = "@@rollpin"


def sections(lines: Iterable[str]) -> dict[str, tuple[int, list[str]]]:
    """Split the fact's output: section name -> (exit status of its command, lines)."""
    out: dict[str, tuple[int, list[str]]] = {}
    name = ""
    body: list[str] = []
    for line in lines:
        if line.startswith(SECTION + " begin "):
            name, body = line.split(" ", 2)[2].strip(), []
        elif line.startswith(SECTION + " end "):
            _, _, end, status = f"{line} - -".split(" ")[:4]
            if name and end == name and status.isascii() and status.isdigit():
                out[name] = (int(status), body)
            name, body = "", []
        elif name:
            body.append(line)
    return out


def _section(
    found: Mapping[str, tuple[int, list[str]]], name: str, parse: Callable[[list[str]], T]
) -> T | Unknown:
    if name not in found:
        return Unknown(f"the host's answer has no section {name}")
    status, lines = found[name]
    if status != 0:
        said = " ".join(lines[-3:]).strip()
        if status in (124, 137):
            said = "no answer in time"
        return Unknown(f"{name}: status {status}{': ' + said if said else ''}")
    try:
        return parse(lines)
    except (ValueError, KeyError, TypeError, IndexError) as e:
        return Unknown(f"{name}: not understood ({type(e).__name__}: {e})")


def parse_host_state(lines: Iterable[str], name: str = "") -> HostState:
    """The fact's output as a HostState. Never raises: what is not understood is Unknown."""
    found = sections(lines)

    def get(section: str, parse: Callable[[list[str]], T]) -> T | Unknown:
        return _section(found, section, parse)

    clock = get("clock", _clock)
    if isinstance(clock, Unknown):
        return unreachable(name, clock.reason)
    hostname, now, uptime, boot_id, systemd, privileged, missing = clock
    image = get("image", lambda b: _image(b) if any(b) else None)
    transaction = get("transaction", lambda b: _transaction(b, uptime))
    releases = get("releases", _releases)
    numbers = get("numbers", lambda b: tuple(sorted({int(x) for x in b if x.strip()})))
    notes = get("displaced", frozenset)
    for seen in (numbers, notes):
        if isinstance(seen, Unknown):
            releases = seen  # the history of the host is known whole, or it is unknown
    # What is missing in these two is unknown to whoever asks for it.
    disks = get("disks", lambda b: dict(_disk(x) for x in b))
    logs = get("logs", lambda b: dict(_log(x) for x in b))
    images = get("images", lambda b: {v["Id"]: v for v in map(json.loads, b)})
    diffs = get("diffs", _diffs)
    verified = get("verified", lambda b: dict(_verified(x) for x in b))
    return HostState(
        name=name or hostname,
        now=now,
        uptime=uptime,
        boot_id=boot_id,
        engine=get("engine", _engine),
        containers=get(
            "containers", lambda b: tuple(container(json.loads(x)) for x in b if x.startswith("{"))
        ),
        image=image,
        gpus=get("gpus", lambda b: tuple(_gpu(x) for x in b)),
        gpu_apps=get("gpu_apps", lambda b: tuple(_gpu_app(x) for x in b)),
        listeners=get("listeners", lambda b: tuple(_listener(x) for x in b)),
        disks={} if isinstance(disks, Unknown) else disks,
        last_log={} if isinstance(logs, Unknown) else logs,
        releases=releases,
        transaction=transaction,
        systemd=systemd,
        privileged=privileged,
        missing_tools=missing,
        displaced_notes=frozenset() if isinstance(notes, Unknown) else notes,
        numbers_used=() if isinstance(numbers, Unknown) else numbers,
        images={} if isinstance(images, Unknown) else images,
        diffs={} if isinstance(diffs, Unknown) else diffs,
        verified={} if isinstance(verified, Unknown) else verified,
        starters=get("starters", starters),
    )


def _clock(b: list[str]) -> tuple[str, float, float, str, bool, bool, tuple[str, ...]]:
    v = dict(x.split("=", 1) for x in b if "=" in x)
    return (
        v["hostname"],
        float(v["now"]),
        float(v["uptime"]),
        v["boot_id"],
        v["systemd"] == "yes",
        v["uid"] == "0",
        tuple(v.get("missing", "").split()),
    )


def _json(b: list[str]) -> dict[str, Any]:
    """The first line that is an object: the docker client warns on the same stream."""
    value: dict[str, Any] = json.loads(next((x for x in b if x.startswith("{")), ""))
    return value


def _engine(b: list[str]) -> Engine:
    v = _json(b)
    if not v.get("ID") or v.get("ServerErrors"):
        raise ValueError("; ".join(v.get("ServerErrors") or ["the engine gave no id"]))
    mirrors = ((v.get("RegistryConfig") or {}).get("Mirrors")) or ()
    status = json.dumps(v.get("DriverStatus") or [])
    storage = f"{v.get('Driver', '')} {status if 'io.containerd' in status else ''}".strip()
    return Engine(
        id=v["ID"],
        root=v["DockerRootDir"],
        version=v.get("ServerVersion", ""),
        storage=storage,
        live_restore=bool(v.get("LiveRestoreEnabled")),
        mirrors=tuple(mirrors),
    )


def container(v: Mapping[str, Any]) -> Container:
    """One object of `docker inspect` as a Container."""
    config, host, state = v["Config"], v["HostConfig"], v["State"]
    policy = host.get("RestartPolicy") or {}
    policy_name = policy.get("Name") or "no"
    if policy_name == "on-failure" and policy.get("MaximumRetryCount"):
        policy_name = f"on-failure:{policy['MaximumRetryCount']}"
    env = dict(e.split("=", 1) for e in config.get("Env") or () if "=" in e)
    bindings = host.get("PortBindings") or {}
    ports = {
        int(b["HostPort"])
        for bound in bindings.values()
        for b in bound or ()
        if (b.get("HostPort") or "").isdigit()
    }
    return Container(
        id=v["Id"],
        name=v["Name"].lstrip("/"),
        image=config.get("Image", ""),
        image_id=v.get("Image", ""),
        argv=(v.get("Path") or "", *(v.get("Args") or ())),
        status=state["Status"],
        pid=int(state.get("Pid") or 0),
        started_at=state.get("StartedAt", ""),
        restart_count=int(v.get("RestartCount") or 0),
        policy=policy_name,
        auto_remove=bool(host.get("AutoRemove")),
        network=host.get("NetworkMode", ""),
        ports=tuple(sorted(ports)),
        gpus=_requested_gpus(host, env),
        labels=dict(config.get("Labels") or {}),
        record=v,
    )


def _requested_gpus(host: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, ...]:
    """The spellings by which a container gets GPUs (facts/serving.md, section 2)."""
    wanted: list[str] = []
    for request in host.get("DeviceRequests") or ():
        ids = [str(i) for i in request.get("DeviceIDs") or ()]
        if request.get("Driver") == "cdi":
            wanted += [i.rsplit("=", 1)[-1] for i in ids if i.startswith("nvidia.com/gpu")]
        elif ids:
            wanted += ids
        elif request.get("Count"):
            wanted.append("all")
    if host.get("Runtime") == "nvidia":
        visible = env.get("NVIDIA_VISIBLE_DEVICES", "")
        if visible not in ("", "none", "void"):
            wanted += [x.strip() for x in visible.split(",")]
    if host.get("Privileged") or any(
        str(d.get("PathOnHost", "")).startswith("/dev/nvidia") for d in host.get("Devices") or ()
    ):
        wanted.append("all")
    return tuple(dict.fromkeys(wanted))


def _image(b: list[str]) -> Image:
    v = _json(b)
    config = v.get("Config") or {}
    return Image(
        id=v["Id"],
        repo_digests=tuple(v.get("RepoDigests") or ()),
        user=config.get("User") or "",
        entrypoint=tuple(config.get("Entrypoint") or ()),
        architecture=v.get("Architecture", ""),
        size=int(v.get("Size") or 0),
    )


def _gpu(line: str) -> Gpu:
    index, uuid, name, driver, used = (x.strip() for x in line.split(","))
    if not uuid.startswith("GPU-"):
        raise ValueError(f"no GPU UUID in {line!r}")
    return Gpu(index, uuid, name, driver, int(used) if used.isdigit() else None)


def _gpu_app(line: str) -> GpuApp:
    row, _, ident = line.rpartition(";")
    pid, uuid, name = (x.strip() for x in row.split(",", 2))
    return GpuApp(int(pid), uuid, name, ident.strip())


def _listener(line: str) -> Listener:
    port, pid, command, ident = line.split(" ", 3)
    if pid == "-":
        return Listener(int(port), None, command, None)
    return Listener(int(port), int(pid), command, ident.strip())


def _disk(line: str) -> tuple[str, Disk | Unknown]:
    v = json.loads(line)
    path = str(v["path"])
    if not str(v["free"]).isdigit():
        return path, Unknown(f"df said nothing about {path}")
    return path, Disk(
        path, int(v["free"]), str(v["options"]), v["exists"] == "yes", str(v.get("fstype", ""))
    )


def _log(line: str) -> tuple[str, float | Unknown | None]:
    ident, _, when = line.partition(" ")
    if when == "none":
        return ident, None
    try:
        return ident, float(when)
    except ValueError:
        return ident, Unknown(f"last log line not read: {when}")


def _diffs(b: list[str]) -> dict[str, tuple[str, ...] | Unknown]:
    """Lines `ID STATUS`, each followed by what `docker diff` said, indented."""
    out: dict[str, tuple[str, ...] | Unknown] = {}
    ident, status, body = "", "", []
    for line in [*b, "end 0"]:
        if line.startswith(" "):
            body.append(line[1:])
            continue
        if ident:
            failed = Unknown(f"docker diff: status {status}")
            out[ident] = tuple(body) if status == "0" else failed
        (ident, status), body = line.split(" ", 1), []
    return out


def _releases(b: list[str]) -> tuple[Release, ...]:
    out = []
    for line in b:
        service, number, state, age, record = line.split(" ", 4)
        try:
            value = json.loads(record)
        except ValueError as e:
            value, why = None, f"not JSON: {e}"
        else:
            why = fault(value, service, int(number))
        if state == "staged":
            why = ""  # cut short by a run that died; it was never armed
        whole = isinstance(value, dict) and not why
        out.append(Release(service, int(number), state, int(age), value if whole else {}, why))
    return tuple(sorted(out, key=lambda r: (r.service, r.number)))


def _verified(line: str) -> tuple[tuple[str, int], tuple[str, str]]:
    service, number, ident, started = line.split()
    return (service, int(number)), (ident, started)


def _transaction(b: list[str], uptime: float) -> Transaction | None:
    if not b:
        return None
    v = dict(x.split("=", 1) for x in b if "=" in x)
    return Transaction(
        id=v["id"],
        service=v["service"],
        release=int(v["release"]),
        by=v.get("by", "?"),
        since=v.get("since", "?"),
        lease_left=float(v.get("lease") or 0) - uptime,
    )
