#!/usr/bin/python3 -IS
"""The lab's nvidia-smi: eight GPUs that are not there, and the engines that really run on them.

One file, standard library only, installed as /usr/local/bin/nvidia-smi on the lab's hosts; formats
as recorded in facts/nvidia-smi (driver 580). As the real one it asks the kernel, not Docker, so it
works for any user and with dockerd dead: a process counts once its short name says that it loads
weights, and its command line names its GPUs. Only an engine that cannot tell (CDI without the lab's
variables) is looked up in Docker, for two seconds at most; then it is left out.

Faults, in JSON at /run/rollpin-lab/nvidia-smi.json (or ROLLPIN_LAB_NVIDIA_SMI_FAULTS):

    {"exit": 9, "stderr": "..."}                ends at once
    {"hang": 30}                                waits so many seconds first
    {"apps": [{"gpu": 0, "pid": 4242, "process_name": "python3", "used_mib": 512}]}
                                                foreign processes
    {"leak_mib": {"0": 2048}}                   memory that no process owns
    {"fields": {"memory.used": "[N/A]"}}        a value for every GPU and process, or
    {"fields": {"utilization.gpu": {"3": 97}}}  for one GPU
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
import time
from typing import Any, NamedTuple

COUNT = 8
NAME = "NVIDIA RTX 6000D"
DRIVER = "580.159.04"
CUDA = "13.0"
TOTAL_MIB = 85651
RESERVED_MIB = 614
BUSES = ("01", "21", "41", "61", "81", "A1", "C1", "E1")
ENGINES = ("sglang::schedul", "VLLM::EngineCor", "VLLM::Worker")

FAULTS = os.environ.get("ROLLPIN_LAB_NVIDIA_SMI_FAULTS", "/run/rollpin-lab/nvidia-smi.json")
PROC = os.environ.get("ROLLPIN_LAB_PROC", "/proc")
DOCKER = os.environ.get("ROLLPIN_LAB_DOCKER_SOCKET", "/var/run/docker.sock")
DOCKER_SECONDS = 2.0


class App(NamedTuple):
    """A process on a GPU."""

    gpu: int
    pid: int
    name: str
    used_mib: int


class Smi(Exception):
    """Ends the program: what to print, and the exit status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# --- what is there ------------------------------------------------------------------------------


def uuid(index: int) -> str:
    """Stable per host and GPU."""
    digest = hashlib.sha256(f"{socket.gethostname()}/{index}".encode()).hexdigest()
    return "GPU-" + "-".join(
        digest[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    )


def bus_id(index: int) -> str:
    return f"00000000:{BUSES[index]}:00.0"


def running_apps() -> list[App]:
    """Every engine past the start of its weights, on each of its GPUs."""
    apps = []
    deadline = time.monotonic() + DOCKER_SECONDS
    for pid in sorted(int(name) for name in os.listdir(PROC) if name.isdigit()):
        if not read(f"{PROC}/{pid}/comm").startswith(ENGINES):
            continue
        title, *words = read(f"{PROC}/{pid}/cmdline").split("\0")
        facts = dict(word[2:].split("=", 1) for word in words if re.match(r"--\w+=", word))
        gpus = indices(facts.get("gpus", "").split(",")) or ask_docker(pid, deadline)
        used = int(float(facts.get("mem_fraction") or 0.9) * TOTAL_MIB)
        apps += [App(gpu, pid, title, used) for gpu in gpus[: int(facts.get("ranks") or COUNT)]]
    return sorted(apps)


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip("\0\n")
    except OSError:  # the process has gone
        return ""


def indices(devices: list[str]) -> list[int]:
    """GPU indices of `all`, indices and UUIDs, CDI names included; what is no GPU is left out."""
    names = [device.strip().removeprefix("nvidia.com/gpu=") for device in devices]
    if "all" in names:
        return list(range(COUNT))
    known = {str(n): n for n in range(COUNT)} | {uuid(n): n for n in range(COUNT)}
    return [known[name] for name in names if name in known]


def ask_docker(pid: int, deadline: float) -> list[int]:
    """The GPUs that the process's container was given; none when Docker does not say in time."""
    container = re.search(r"[0-9a-f]{64}", read(f"{PROC}/{pid}/cgroup"))
    if container is None:
        return []
    try:
        inspected = docker_get(f"/containers/{container[0]}/json", deadline)
    except (OSError, ValueError):
        return []
    return granted(inspected)


def granted(inspected: dict[str, Any]) -> list[int]:
    """The GPUs a container was given, in each of Docker's three spellings."""
    config = inspected.get("HostConfig") or {}
    for request in config.get("DeviceRequests") or []:
        if request.get("DeviceIDs"):
            return indices(request["DeviceIDs"])
        count = int(request.get("Count") or 0)
        return list(range(COUNT if count < 0 else min(count, COUNT)))
    if config.get("Runtime") == "nvidia":
        for variable in (inspected.get("Config") or {}).get("Env") or []:
            if variable.startswith("NVIDIA_VISIBLE_DEVICES="):
                return indices(variable.partition("=")[2].split(","))
    return list(range(COUNT)) if config.get("Privileged") else []


def docker_get(path: str, deadline: float) -> Any:
    """A GET on Docker's socket. Raises OSError (TimeoutError too) or ValueError."""
    with socket.socket(socket.AF_UNIX) as engine:
        answer = b""
        engine.settimeout(max(0.01, deadline - time.monotonic()))
        engine.connect(DOCKER)
        engine.sendall(f"GET {path} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        while True:
            engine.settimeout(max(0.01, deadline - time.monotonic()))
            data = engine.recv(1 << 16)
            if not data:
                break
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise ValueError(f"docker answered {head[:60]!r}")
    return json.loads(body)


# --- what is asked ------------------------------------------------------------------------------

UNITS = {"memory": "MiB", "utilization": "%", "power": "W", "clocks": "MHz", "fan": "%"}
ALIASES = {
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "used_memory": "used_gpu_memory",
}


def unit_of(field: str) -> str:
    return (
        "MiB" if field in ("used_gpu_memory", "used_memory") else UNITS.get(field.split(".")[0], "")
    )


class Machine:
    """The GPUs and who is on them, faults included."""

    def __init__(self, faults: dict[str, Any]) -> None:
        self.fields = faults.get("fields", {})
        self.leaks = {int(k): int(v) for k, v in faults.get("leak_mib", {}).items()}
        self.apps = running_apps()
        for app in faults.get("apps", []):
            name = str(app.get("process_name", "python3"))
            self.apps.append(App(int(app["gpu"]), int(app["pid"]), name, int(app["used_mib"])))
        self.apps.sort()

    def used(self, gpu: int) -> int:
        sizes = [app.used_mib for app in self.apps if app.gpu == gpu]
        driver = 9 if sizes else 4
        return min(TOTAL_MIB - RESERVED_MIB, sum(sizes) + driver + self.leaks.get(gpu, 0))

    def gpu(self, index: int) -> dict[str, str]:
        """Every field of a GPU, without units."""
        used = self.used(index)
        busy = any(app.gpu == index for app in self.apps)
        values: dict[str, object] = {
            "index": index,
            "count": COUNT,
            "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
            "uuid": uuid(index),
            "name": NAME,
            "serial": f"15629250{index:05d}",
            "pci.bus_id": bus_id(index),
            "driver_version": DRIVER,
            "vbios_version": "98.02.52.00.02",
            "compute_cap": "12.0",
            "compute_mode": "Default",
            "display_active": "Disabled",
            "persistence_mode": "Enabled",
            "mig.mode.current": "Disabled",
            "mig.mode.pending": "Disabled",
            "pstate": "P0" if busy else "P8",
            "memory.total": TOTAL_MIB,
            "memory.reserved": RESERVED_MIB,
            "memory.used": used,
            "memory.free": TOTAL_MIB - RESERVED_MIB - used,
            "utilization.gpu": 0,
            "utilization.memory": 0,
            "temperature.gpu": 42 if busy else 33,
            "fan.speed": 30,
            "power.draw": "88.10" if busy else "17.25",
            "power.limit": "600.00",
            "clocks.sm": 2430 if busy else 180,
            "ecc.mode.current": "Enabled",
            "ecc.errors.uncorrected.volatile.total": 0,
            "pcie.link.gen.current": 5,
            "pcie.link.width.current": 16,
        }
        return {name: self.said(name, value, index) for name, value in values.items()}

    def app(self, app: App) -> dict[str, str]:
        """Every field of a process, without units."""
        values: dict[str, object] = {
            "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
            "pid": app.pid,
            "process_name": app.name,
            "uuid": uuid(app.gpu),
            "name": NAME,
            "pci.bus_id": bus_id(app.gpu),
            "used_gpu_memory": app.used_mib,
        }
        return {name: self.said(name, value, app.gpu) for name, value in values.items()}

    def said(self, field: str, value: object, gpu: int) -> str:
        fault = self.fields.get(field, value)
        return str(fault.get(str(gpu), value) if isinstance(fault, dict) else fault)


def query(machine: Machine, what: str, fields: list[str], style: list[str], gpus: list[int]) -> str:
    """A CSV answer. Raises Smi(2) for a field that there is none of."""
    if what == "gpu":
        rows = [machine.gpu(index) for index in gpus]
        known = machine.gpu(0)
    else:
        rows = [machine.app(app) for app in machine.apps if app.gpu in gpus]
        known = machine.app(App(0, 0, "", 0))
    for field in fields:
        if ALIASES.get(field, field) not in known:
            raise Smi(2, f'Field "{field}" is not a valid field to query.\n')
    units = {field: "" if "nounits" in style else unit_of(field) for field in fields}
    lines = []
    if "noheader" not in style:
        lines.append(", ".join(f"{f} [{units_}]" if (units_ := unit_of(f)) else f for f in fields))
    for row in rows:
        values = [(row[ALIASES.get(field, field)], units[field]) for field in fields]
        # "[N/A]" and the like carry no unit
        lines.append(
            ", ".join(v if not unit or not v[:1].isdigit() else f"{v} {unit}" for v, unit in values)
        )
    return "".join(f"{line}\n" for line in lines)


def listing(gpus: list[int]) -> str:
    return "".join(f"GPU {n}: {NAME} (UUID: {uuid(n)})\n" for n in gpus)


def pmon(machine: Machine) -> str:
    lines = [
        "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command ",
        "# Idx           #    C/G      %      %      %      %      %      %    name ",
    ]
    for gpu in range(COUNT):
        apps = [app for app in machine.apps if app.gpu == gpu]
        rest = "      -" * 4
        for app in apps:
            lines.append(f"{gpu:5d}{app.pid:11d}     C{0:7d}{0:7d}{rest}    {app.name[:14]:<15}")
        if not apps:
            lines.append(f"{gpu:5d}{'-':>11}     -{'-':>7}{'-':>7}{rest}    {'-':<15}")
    return "".join(f"{line}\n" for line in lines)


# --- the table ----------------------------------------------------------------------------------

RULE = "+-----------------------------------------------------------------------------------------+"
SPLIT = (
    "+-----------------------------------------+------------------------+----------------------+"
)
TOP = f"""\
{RULE}
| NVIDIA-SMI {DRIVER:<22} Driver Version: {DRIVER:<14} CUDA Version: {CUDA:<8} |
{SPLIT}
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
PROCESSES = f"""\
{RULE}
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
"""


def table(machine: Machine, gpus: list[int]) -> str:
    text = f"{time.strftime('%a %b %d %H:%M:%S %Y'):<31}\n{TOP}"
    for index in gpus:
        gpu = machine.gpu(index)
        watts = f"{gpu['power.draw'].split('.')[0]}W / {gpu['power.limit'].split('.')[0]:>4}W"
        memory = f"{gpu['memory.used']}MiB / {gpu['memory.total']}MiB"
        fan, load = f"{gpu['fan.speed']}%", f"{gpu['utilization.gpu']}%"
        temperature = f"{gpu['temperature.gpu']}C"
        errors = gpu["ecc.errors.uncorrected.volatile.total"]
        text += (
            f"| {index:3d}  {NAME:<25}      On  |   {gpu['pci.bus_id']} Off | {errors:>20} |\n"
            f"| {fan:>3} {temperature:>5}    {gpu['pstate']:<3} {watts:>22} "
            f"| {memory:>22} | {load:>7} {gpu['compute_mode']:>12} |\n"
            f"|{'':41}|{'':24}| {gpu['mig.mode.current']:>20} |\n{SPLIT}\n"
        )
    text += f"\n{PROCESSES}"
    apps = [app for app in machine.apps if app.gpu in gpus]
    for app in apps:
        size = f"{app.used_mib}MiB"
        text += (
            f"| {app.gpu:4d}   N/A  N/A {app.pid:15d}      C   {app.name[:33]:<33} {size:>12} |\n"
        )
    if not apps:
        text += f"|  {'No running processes found':<87}|\n"
    return f"{text}{RULE}\n"


# --- the command line ---------------------------------------------------------------------------


def answer(argv: list[str], faults: dict[str, Any]) -> str:
    """What to print. Raises Smi with the exit status otherwise."""
    options: dict[str, str] = {}
    words = list(argv)
    if words[:1] == ["pmon"]:
        return pmon(Machine(faults))
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name == "-i" and not equals and words:
            value = words.pop(0)
        if name not in OPTIONS:
            raise Smi(2, "Invalid combination of input arguments. Please run 'nvidia-smi -h'.\n")
        options[OPTIONS[name]] = value
    gpus = indices(options["id"].split(",")) if "id" in options else list(range(COUNT))
    if not gpus:
        raise Smi(6, "No devices were found")
    if "list" in options:
        return listing(gpus)
    for what in ("gpu", "apps"):
        if what in options:
            style = options.get("format", "").split(",")
            if "csv" not in style:
                raise Smi(2, f'Option "--query-{what}=" needs "--format=csv".\n')
            fields = [field.strip() for field in options[what].split(",")]
            return query(Machine(faults), what, fields, style, gpus)
    return table(Machine(faults), gpus)


OPTIONS = {
    "-L": "list",
    "--list-gpus": "list",
    "-i": "id",
    "--id": "id",
    "--query-gpu": "gpu",
    "--query-compute-apps": "apps",
    "--format": "format",
}


def main(argv: list[str]) -> int:
    try:
        with open(FAULTS, encoding="utf-8") as file:
            faults = json.load(file)
    except FileNotFoundError:
        faults = {}
    time.sleep(float(faults.get("hang", 0)))
    if "exit" in faults:
        sys.stderr.write(f"{faults.get('stderr', '')}\n")
        return int(faults["exit"])
    try:
        sys.stdout.write(answer(argv, faults))
    except Smi as end:
        sys.stdout.write(f"{end}\n")
        return end.status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
