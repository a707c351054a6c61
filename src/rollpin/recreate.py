"""A container as the `docker create` command line that makes it again. Pure.

From `docker inspect` of the container and of its image. What the command line cannot say, and what
a container loses with its removal, is named: `losses`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rollpin.observe import WAS, Container, HostState, Unknown

DIFF_LINES = 500  # as many as the fact reads
# Of a container of ours that nobody looked at before it went.
OWN_LOSSES = ("what it wrote into itself", "its log")
_ANONYMOUS = re.compile(r"[0-9a-f]{64}")
_DEFAULT_SHM = 64 * 1024 * 1024


@dataclass(frozen=True)
class Recreation:
    """options and words go before and after the image. env: lines of an env-file; exported: those
    that such a file cannot hold. networks: options of each further `docker network connect`.
    """

    name: str
    image: str  # as the container named it
    image_id: str
    pull: str  # repository@digest, or "" when no registry has it
    options: tuple[str, ...]
    words: tuple[str, ...]
    env: tuple[str, ...]
    exported: Mapping[str, str]
    networks: tuple[tuple[str, ...], ...]
    volumes: tuple[tuple[str, str], ...]  # anonymous ones: name, path inside
    losses: tuple[str, ...]


def command(again: Recreation, name: str, env_file: str) -> tuple[list[str], list[str]]:
    """The `docker create` command line: the words before and those after the image."""
    before = ["docker", "create", "--name", name, *again.options]
    if again.env:
        before += ["--env-file", env_file]
    for exported in again.exported:
        before += ["--env", exported]
    return before, list(again.words)


def of(c: Container, state: HostState) -> Recreation:
    """How to make this container of the host again."""
    diff = state.diffs.get(c.id, Unknown("not looked at"))
    return recreation(
        c.record, state.images.get(c.image_id), diff.reason if isinstance(diff, Unknown) else diff
    )


def recreation(
    record: Mapping[str, Any], image: Mapping[str, Any] | None, diff: Sequence[str] | str = ()
) -> Recreation:
    """How to make the container of `record` again.

    image: `docker image inspect` of its image, None when the engine has it no more. diff: the lines
    of `docker diff`, or why they are not known.
    """
    config, host = record["Config"], record["HostConfig"]
    base: Mapping[str, Any] = (image or {}).get("Config") or {}
    told: list[str] = []  # what no option says
    env, exported = _env(config, base, told)
    volumes = tuple(_anonymous(record))
    entrypoint, words = _command(config, base)
    network, networks = _networks(record)
    options = (
        *_identity(record, config, base),
        *entrypoint,
        *_process(config, base, told),
        *network,
        *_host_config(host, told),
        *_mounts(host, volumes, told),
    )
    return Recreation(
        name=str(record["Name"]).lstrip("/"),
        image=str(config.get("Image") or ""),
        image_id=str(record.get("Image") or ""),
        pull=str(next(iter((image or {}).get("RepoDigests") or ()), "")),
        options=options,
        words=words,
        env=env,
        exported=exported,
        networks=networks,
        volumes=volumes,
        losses=(*_written(diff), *told, "its log"),
    )


def _identity(
    record: Mapping[str, Any], config: Mapping[str, Any], base: Mapping[str, Any]
) -> Iterator[str]:
    inherited = base.get("Labels") or {}
    labels = dict(config.get("Labels") or {})
    for key, value in sorted(labels.items()):
        if inherited.get(key) != value:
            yield from ("--label", f"{key}={value}")
    yield from ("--label", f"{WAS}.{record['Id']}=removed")


def _env(
    config: Mapping[str, Any], base: Mapping[str, Any], told: list[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    inherited = set(base.get("Env") or ())
    lines, exported = [], {}
    for item in config.get("Env") or ():
        name, equals, value = item.partition("=")
        if item in inherited:
            continue
        if not equals or not re.fullmatch(r"[^\s#=][^\s=]*", name):
            told.append(f"the variable {name!r}")
        elif "\n" not in value and "\r" not in value:
            lines.append(item)
        elif re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            exported[name] = value
        else:
            told.append(f"the variable {name}")
    return tuple(lines), exported


def _command(
    config: Mapping[str, Any], base: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(--entrypoint option, words after the image): the same process in any case."""
    entry, words = config.get("Entrypoint") or [], tuple(config.get("Cmd") or ())
    inherited = base.get("Cmd") or []
    if entry == (base.get("Entrypoint") or []) and (words or not inherited):
        return (), () if list(words) == inherited else words
    if not entry:
        return ("--entrypoint", ""), words
    return ("--entrypoint", entry[0]), (*entry[1:], *words)


def _process(config: Mapping[str, Any], base: Mapping[str, Any], told: list[str]) -> Iterator[str]:
    for key, option in (
        ("User", "--user"),
        ("WorkingDir", "--workdir"),
        ("StopSignal", "--stop-signal"),
        ("Domainname", "--domainname"),
        ("MacAddress", "--mac-address"),
    ):
        if config.get(key) and config[key] != base.get(key):
            yield from (option, str(config[key]))
    if config.get("StopTimeout") is not None:
        yield from ("--stop-timeout", str(config["StopTimeout"]))
    if config.get("Tty"):
        yield "--tty"
    if config.get("OpenStdin"):
        yield "--interactive"
    for port in sorted(set(config.get("ExposedPorts") or ()) - set(base.get("ExposedPorts") or ())):
        yield from ("--expose", port)
    health = config.get("Healthcheck")
    if health and health != base.get("Healthcheck"):
        yield from _health(health, told)


def _health(health: Mapping[str, Any], told: list[str]) -> Iterator[str]:
    test = health.get("Test") or []
    if test == ["NONE"]:
        yield "--no-healthcheck"
        return
    if len(test) == 2 and test[0] == "CMD-SHELL":
        yield from ("--health-cmd", test[1])
    elif test:
        told.append("its health check, which is no shell command")
    for key, option in (
        ("Interval", "--health-interval"),
        ("Timeout", "--health-timeout"),
        ("StartPeriod", "--health-start-period"),
        ("StartInterval", "--health-start-interval"),
    ):
        if health.get(key):
            yield from (option, f"{health[key]}ns")
    if health.get("Retries"):
        yield from ("--health-retries", str(health["Retries"]))


def _networks(
    record: Mapping[str, Any],
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Options of `docker create`, and those of each further `docker network connect`."""
    config, host = record["Config"], record["HostConfig"]
    mode = str(host.get("NetworkMode") or "default")
    joined = (record.get("NetworkSettings") or {}).get("Networks") or {}
    first: list[str] = ["--network", mode]
    hostname = str(config.get("Hostname") or "")
    # Docker's own choice is the short id. It takes none beside the host's UTS namespace.
    if (
        hostname
        and host.get("UTSMode") != "host"
        and not mode.startswith("container:")
        and not str(record["Id"]).startswith(hostname)
    ):
        first += ["--hostname", hostname]
    first += _endpoint(record, joined.get(mode) or {}, "--network-alias")
    more = [
        (*_endpoint(record, endpoint, "--alias"), name)
        for name, endpoint in sorted(joined.items())
        if name != mode and (name, mode) != ("bridge", "default")
    ]
    return tuple(first), tuple(more)


def _endpoint(record: Mapping[str, Any], endpoint: Mapping[str, Any], alias: str) -> list[str]:
    out: list[str] = []
    fixed = endpoint.get("IPAMConfig") or {}
    for key, option in (("IPv4Address", "--ip"), ("IPv6Address", "--ip6")):
        if fixed.get(key):
            out += [option, str(fixed[key])]
    for name in endpoint.get("Aliases") or ():
        if not str(record["Id"]).startswith(name):
            out += [alias, str(name)]
    return out


# Options that take one value each: HostConfig key, option.
_SINGLE = (
    ("CgroupParent", "--cgroup-parent"),
    ("CgroupnsMode", "--cgroupns"),
    ("PidMode", "--pid"),
    ("UTSMode", "--uts"),
    ("UsernsMode", "--userns"),
    ("IpcMode", "--ipc"),
    ("VolumeDriver", "--volume-driver"),
    ("CpuShares", "--cpu-shares"),
    ("CpuPeriod", "--cpu-period"),
    ("CpuQuota", "--cpu-quota"),
    ("CpuRealtimePeriod", "--cpu-rt-period"),
    ("CpuRealtimeRuntime", "--cpu-rt-runtime"),
    ("CpusetCpus", "--cpuset-cpus"),
    ("CpusetMems", "--cpuset-mems"),
    ("Memory", "--memory"),
    ("MemoryReservation", "--memory-reservation"),
    ("MemorySwap", "--memory-swap"),
    ("KernelMemory", "--kernel-memory"),
    ("BlkioWeight", "--blkio-weight"),
    ("OomScoreAdj", "--oom-score-adj"),
)
_REPEATED = (
    ("VolumesFrom", "--volumes-from"),
    ("CapAdd", "--cap-add"),
    ("CapDrop", "--cap-drop"),
    ("Dns", "--dns"),
    ("DnsOptions", "--dns-option"),
    ("DnsSearch", "--dns-search"),
    ("ExtraHosts", "--add-host"),
    ("GroupAdd", "--group-add"),
    ("DeviceCgroupRules", "--device-cgroup-rule"),
)
_PAIRS = (
    ("Sysctls", "--sysctl", "="),
    ("StorageOpt", "--storage-opt", "="),
    ("Tmpfs", "--tmpfs", ":"),
    ("Annotations", "--annotation", "="),
)
_SWITCHES = (
    ("AutoRemove", "--rm"),
    ("Privileged", "--privileged"),
    ("ReadonlyRootfs", "--read-only"),
    ("PublishAllPorts", "--publish-all"),
    ("OomKillDisable", "--oom-kill-disable"),
)
_RATES = (
    ("BlkioDeviceReadBps", "--device-read-bps"),
    ("BlkioDeviceWriteBps", "--device-write-bps"),
    ("BlkioDeviceReadIOps", "--device-read-iops"),
    ("BlkioDeviceWriteIOps", "--device-write-iops"),
)
# Said elsewhere in this module, or by the restore itself (policy), or nobody's wish (what the
# client's terminal was like, what the engine derives).
_ELSEWHERE = {
    *("Binds", "Mounts", "NetworkMode", "PortBindings", "RestartPolicy", "Links"),
    *("SecurityOpt", "MaskedPaths", "ReadonlyPaths", "ShmSize", "Runtime", "NanoCpus", "Init"),
    *("PidsLimit", "Ulimits", "LogConfig", "Devices", "DeviceRequests", "MemorySwappiness"),
    *("BlkioWeightDevice", "ContainerIDFile", "ConsoleSize", "Cgroup", "Isolation"),
    *("KernelMemoryTCP", "Capabilities", "CpuCount", "CpuPercent"),
    *("IOMaximumIOps", "IOMaximumBandwidth"),
}


def _host_config(host: Mapping[str, Any], told: list[str]) -> Iterator[str]:
    yield from ("--restart", "no")
    for key, option in _SINGLE:
        if host.get(key):
            yield from (option, str(host[key]))
    for key, option in _REPEATED:
        for value in host.get(key) or ():
            yield from (option, str(value))
    for key, option, between in _PAIRS:
        for name, value in sorted((host.get(key) or {}).items()):
            yield from (option, f"{name}{between}{value}" if value else name)
    for key, option in _SWITCHES:
        if host.get(key):
            yield option
    for key, option in _RATES:
        for rate in host.get(key) or ():
            yield from (option, f"{rate['Path']}:{rate['Rate']}")
    yield from _limits(host)
    yield from _devices(host, told)
    yield from _ports(host)
    yield from _security(host)
    log = host.get("LogConfig") or {}
    if log.get("Type"):
        yield from ("--log-driver", str(log["Type"]))
    for name, value in sorted((log.get("Config") or {}).items()):
        yield from ("--log-opt", f"{name}={value}")
    for link in host.get("Links") or ():
        # /target:/this/alias
        target, _, alias = str(link).partition(":")
        yield from ("--link", f"{target.lstrip('/')}:{alias.rsplit('/', 1)[-1]}")
    known = {row[0] for row in (*_SINGLE, *_REPEATED, *_PAIRS, *_SWITCHES, *_RATES)} | _ELSEWHERE
    for key in sorted(set(host) - known):
        if host[key]:
            told.append(f"its setting {key} ({json.dumps(host[key])[:80]})")


def _limits(host: Mapping[str, Any]) -> Iterator[str]:
    if host.get("NanoCpus"):
        yield from ("--cpus", f"{host['NanoCpus'] / 1e9:g}")
    if (host.get("PidsLimit") or 0) > 0:
        yield from ("--pids-limit", str(host["PidsLimit"]))
    if host.get("MemorySwappiness") not in (None, -1):
        yield from ("--memory-swappiness", str(host["MemorySwappiness"]))
    if host.get("ShmSize") not in (None, 0, _DEFAULT_SHM):
        yield from ("--shm-size", str(host["ShmSize"]))
    if host.get("Init") is not None:
        yield f"--init={'true' if host['Init'] else 'false'}"
    if host.get("Runtime"):
        yield from ("--runtime", str(host["Runtime"]))
    for limit in host.get("Ulimits") or ():
        yield from ("--ulimit", f"{limit['Name']}={limit['Soft']}:{limit['Hard']}")
    for weight in host.get("BlkioWeightDevice") or ():
        yield from ("--blkio-weight-device", f"{weight['Path']}:{weight['Weight']}")


def _devices(host: Mapping[str, Any], told: list[str]) -> Iterator[str]:
    for device in host.get("Devices") or ():
        inside = device.get("PathInContainer") or device["PathOnHost"]
        rights = device.get("CgroupPermissions") or "rwm"
        yield from ("--device", f"{device['PathOnHost']}:{inside}:{rights}")
    for request in host.get("DeviceRequests") or ():
        ids = [str(i) for i in request.get("DeviceIDs") or ()]
        if request.get("Driver") == "cdi":
            for ident in ids:
                yield from ("--device", ident)
            continue
        capabilities = request.get("Capabilities") or []
        if len(capabilities) != 1 or "gpu" not in capabilities[0]:
            told.append(f"its device request {json.dumps(request)[:120]}")
            continue
        fields = [f'"device={",".join(ids)}"'] if ids else []
        if not ids:
            count = request.get("Count") or 0
            fields = ["all" if count == -1 else f"count={count}"]
        if request.get("Driver"):
            fields.append(f"driver={request['Driver']}")
        if more := [c for c in capabilities[0] if c != "gpu"]:
            fields.append(f'"capabilities={",".join(more)}"')
        if options := request.get("Options"):
            pairs = ",".join(f"{k}={v}" for k, v in sorted(options.items()))
            fields.append(f'"options={pairs}"')
        yield from ("--gpus", ",".join(fields))


def _ports(host: Mapping[str, Any]) -> Iterator[str]:
    for inside, bound in sorted((host.get("PortBindings") or {}).items()):
        for one in bound or ():
            ip, port = one.get("HostIp") or "", one.get("HostPort") or ""
            ip = f"[{ip}]" if ":" in ip else ip
            yield from ("--publish", f"{ip}:{port}:{inside}" if ip else f"{port}:{inside}")


def _security(host: Mapping[str, Any]) -> Iterator[str]:
    for option in host.get("SecurityOpt") or ():
        yield from ("--security-opt", str(option))
    if host.get("MaskedPaths") == [] and not host.get("Privileged"):
        yield from ("--security-opt", "systempaths=unconfined")


def _anonymous(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Volumes that docker named: mounted again by that name they are the same, while they exist."""
    for mount in record.get("Mounts") or ():
        if mount.get("Type") == "volume" and _ANONYMOUS.fullmatch(str(mount.get("Name") or "")):
            yield str(mount["Name"]), str(mount["Destination"])


def _mounts(
    host: Mapping[str, Any], volumes: Sequence[tuple[str, str]], told: list[str]
) -> Iterator[str]:
    for bind in host.get("Binds") or ():
        yield from ("--volume", str(bind))
    for name, inside in volumes:
        if not any(str(b).split(":")[:2] == [name, inside] for b in host.get("Binds") or ()):
            yield from ("--volume", f"{name}:{inside}")
    for mount in host.get("Mounts") or ():
        if not mount.get("Source") and mount.get("Type") == "volume":
            continue  # an anonymous one, mounted by its name above
        fields = [f"type={mount['Type']}", f"target={mount['Target']}"]
        if mount.get("Source"):
            fields.append(f"source={mount['Source']}")
        if mount.get("ReadOnly"):
            fields.append("readonly")
        more = dict(mount.get("BindOptions") or {})
        if more.pop("Propagation", None):
            fields.append(f"bind-propagation={mount['BindOptions']['Propagation']}")
        tmpfs = dict(mount.get("TmpfsOptions") or {})
        if size := tmpfs.pop("SizeBytes", None):
            fields.append(f"tmpfs-size={size}")
        if mode := tmpfs.pop("Mode", None):
            fields.append(f"tmpfs-mode={mode:o}")
        volume = dict(mount.get("VolumeOptions") or {})
        if volume.pop("NoCopy", None):
            fields.append("volume-nocopy")
        for key, value in sorted((volume.pop("Labels", None) or {}).items()):
            fields.append(f"volume-label={key}={value}")
        driver = dict(volume.pop("DriverConfig", None) or {})
        if driver.get("Name"):
            fields.append(f"volume-driver={driver['Name']}")
        for key, value in sorted((driver.get("Options") or {}).items()):
            fields.append(f"volume-opt={key}={value}")
        if left := {k: v for k, v in {**more, **tmpfs, **volume}.items() if v}:
            told.append(f"of its mount {mount['Target']}: {json.dumps(left)[:80]}")
        yield from ("--mount", ",".join(_csv(f) for f in fields))


def _csv(field: str) -> str:
    """A field as docker's reader of comma-separated values takes it."""
    return '"' + field.replace('"', '""') + '"' if re.search(r'[",\n\r]', field) else field


def _written(diff: Sequence[str] | str) -> list[str]:
    """What it wrote into itself: gone with it, whatever is made in its place."""
    if isinstance(diff, str):
        return [f"what it wrote into itself (how much is not known: {diff})"]
    paths = [line[2:] for line in diff if line[:2] in ("A ", "C ")]
    # Docker lists the folders on the way too.
    files = [p for p in paths if not any(q.startswith(f"{p}/") for q in paths)]
    if not files:
        return []
    some = ", ".join(files[:3])
    least = "at least " if len(diff) >= DIFF_LINES else ""
    many = f" and {least}{len(files) - 3} more" if len(files) > 3 else ""
    return [f"what it wrote into itself ({some}{many})"]
