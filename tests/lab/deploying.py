"""Deploys as a person runs them, `pyinfra` on the command line, and hosts before and after."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rollpin.lab.host import Host, User
from rollpin.lab.state import Lab

ROOT = Path(__file__).parents[2]
PYINFRA = str(Path(sys.executable).with_name("pyinfra"))
DEPLOY = "deploys/glm53.py"
LATEST = ROOT / "profiles/pro6000/glm53_nvfp4_pro6000_sglang_tp2pp4_latest_autotune.env"
NIGHTLY = ROOT / "profiles/pro6000/glm53_nvfp4_pro6000_sglang_tp2pp4_nightly.env"
STATE = "/var/lib/rollpin"
RELEASES = f"{STATE}/glm53/releases"
# for tests that are about something else than the engine's own speed
QUICK = {
    "ROLLPIN_LAB_LOAD_SECONDS": "0.1",
    "ROLLPIN_LAB_COLD_SECONDS": "0.1",
    "ROLLPIN_LAB_WARMUP_SECONDS": "0.05",
    "ROLLPIN_LAB_HEALTH_SECONDS": "0.1",
    "ROLLPIN_LAB_DRAIN_SECONDS": "0.05",
    "ROLLPIN_LAB_CRASH_SECONDS": "0.1",
    "ROLLPIN_LAB_HUNG_STOP_SECONDS": "0.2",
}
QUICKLY = {"rollpin_settle": "1s", "rollpin_env": QUICK}

# The lab's inventory with data of a test's own per host.
INVENTORY = """
import json, runpy
from pathlib import Path

extra = json.loads(Path(__file__).with_name("data.json").read_text())
group = runpy.run_path("inventory/group_data/lab.py")
group = {name: value for name, value in group.items() if not name.startswith("_")}
lab = [
    (name, {**data, **group, **extra.get(name, {})})
    for name, data in runpy.run_path("inventory/lab.py")["lab"]
]
"""
# deploys/glm53.py with a profile of a test's own.
DEPLOY_OF = """
from pyinfra import host
from roles.inference_server import inference_server

inference_server(profile=host.data.get("profile"))
"""

T = TypeVar("T")


# --- a run ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """One host's line at the end of a run, and what is indented below it."""

    word: str
    line: str
    below: str = ""

    @property
    def text(self) -> str:
        return f"{self.line}\n{self.below}"


@dataclass(frozen=True)
class Run:
    """How pyinfra ended. `out` is what scripts read, `err` what a person watches."""

    status: int
    out: str
    err: str

    @property
    def verdicts(self) -> dict[str, Ended]:
        """By host, in the order of the summary."""
        found: dict[str, Ended] = {}
        name = ""
        for line in self.out.splitlines():
            head = re.match(r"(\S+): (\S+) (\D*?)(?:, |$)", line)
            if head and not line.startswith(" "):
                name = head[1]
                found[name] = Ended(head[3], line)
            elif name:
                one = found[name]
                found[name] = Ended(one.word, one.line, f"{one.below}{line}\n")
        return found

    @property
    def words(self) -> dict[str, str]:
        return {name: one.word for name, one in self.verdicts.items()}

    def plan(self, host: str) -> str:
        """The text of the plan that was shown for a host; the last one."""
        begins = re.compile(rf"^{re.escape(host)}: ", re.MULTILINE)
        text = self.err[[m.start() for m in begins.finditer(self.err)][-1] :]
        first, *rest = text.splitlines()
        return "\n".join([first, *_indented(rest)])

    def plan_hash(self, host: str) -> str:
        found = re.search(r"^  plan (\w+):", self.plan(host), re.MULTILINE)
        assert found, self.plan(host)
        return found[1]

    def __str__(self) -> str:
        return f"status {self.status}\n{self.out}\n{self.err}"


def _indented(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if not re.match(r"  (?!  \[)", line):
            return
        yield line


@dataclass(frozen=True)
class Deployer:
    """Runs pyinfra on the hosts of one lab. Temp files are in `folder`."""

    lab: Lab
    folder: Path

    def argv(
        self,
        what: str | Path = DEPLOY,
        *,
        data: Mapping[str, Any] | None = None,
        on: Mapping[str, Mapping[str, Any]] | Sequence[str] = (),
        profile: Path | None = None,
        flags: Sequence[str] = ("-y",),
    ) -> list[str]:
        """`data` is for all hosts; `on` names the hosts, and may give data of their own."""
        own = Path(tempfile.mkdtemp(dir=self.folder))
        given = dict(data or {})
        if profile is not None:
            what = own / "deploy.py"
            what.write_text(DEPLOY_OF)
            given["profile"] = str(profile)
        inventory = "inventory/lab.py"
        if isinstance(on, Mapping):
            (own / "lab.py").write_text(INVENTORY)
            (own / "data.json").write_text(json.dumps(on))
            inventory = str(own / "lab.py")
        argv = [PYINFRA, *flags, inventory, str(what)]
        for host in on:
            argv += ["--limit", host]
        for name, value in given.items():
            argv += ["--data", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        return argv

    def start(
        self, what: str | Path = DEPLOY, *, user: User = "root", **options: Any
    ) -> subprocess.Popen[str]:
        """pyinfra, started; its streams are pipes. The options are those of `argv`."""
        env = {**os.environ, "ROLLPIN_LAB": self.lab.name, "ROLLPIN_LAB_USER": user}
        return subprocess.Popen(
            self.argv(what, **options),
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        what: str | Path = DEPLOY,
        *,
        user: User = "root",
        timeout: float = 120,
        **options: Any,
    ) -> Run:
        return ended(self.start(what, user=user, **options), timeout)


def ended(process: subprocess.Popen[str], timeout: float = 120) -> Run:
    """Waits for the end; kills what has none."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end after {timeout:.0f} s\n{out}\n{err}") from None
    return Run(process.returncode, out, err)


class Watched:
    """A run of which somebody reads along, to act in the middle of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""
        self.grew = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        while text := os.read(self.process.stderr.fileno(), 65536):
            with self.grew:
                self.said += text.decode(errors="replace")
                self.grew.notify_all()

    def until(self, text: str, deadline: float = 60) -> None:
        """Returns once the run has said `text`."""
        with self.grew:
            assert self.grew.wait_for(lambda: text in self.said, deadline), self.said

    def answer(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def end(self, timeout: float = 120) -> Run:
        process = self.process
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            with process:  # closes the streams
                status = process.wait(timeout)
                self.reader.join(timeout)
                return Run(status, process.stdout.read(), self.said)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


# --- a host, before and after ---------------------------------------------------------------------

_LOOK = r"""
import glob, json, os, subprocess

def ask(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]

def tree(*roots):
    found = {}
    for root in roots:
        for folder, folders, files in os.walk(root):
            for path in [folder, *(os.path.join(folder, f) for f in (*folders, *files))]:
                s = os.lstat(path)
                found[path] = [oct(s.st_mode & 0o7777), s.st_ino, s.st_mtime_ns, s.st_size]
    return found

# sessions, and systemd's own helpers that come and go
foreign = ("sshd", "/usr/sbin/sshd", "(sd-pam)", "(systemd)", "/lib/systemd", "/usr/lib/systemd")
mine = set()
pid = os.getpid()
while pid:
    mine.add(pid)
    pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
processes = []
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in mine:
        try:
            words = open(f"/proc/{name}/cmdline").read().split("\0")
        except OSError:
            continue
        if words[0] and not words[0].startswith(foreign):
            processes.append(" ".join(words).strip())

ids = ask("docker", "ps", "-aq", "--no-trunc")
inspected = json.loads("\n".join(ask("docker", "inspect", *ids))) if ids else []
print(json.dumps({
    "containers": {
        c["Id"]: [c["Name"][1:], c["State"]["Status"], c["HostConfig"]["RestartPolicy"]["Name"],
                  c["Config"]["Image"], c["State"]["StartedAt"]]
        for c in inspected
    },
    "images": sorted(set(ask("docker", "image", "ls", "--digests", "--no-trunc", "--format",
                             "{{.Repository}}:{{.Tag}} {{.ID}}"))),
    "volumes": sorted(ask("docker", "volume", "ls", "-q")),
    "networks": sorted(ask("docker", "network", "ls", "-q")),
    "units": sorted(ask("systemctl", "list-units", "--all", "--plain", "--no-legend", "rollpin*")),
    "unit_files": sorted(glob.glob("/etc/systemd/system/**/*rollpin*", recursive=True)
                         + glob.glob("/run/systemd/**/*rollpin*", recursive=True)),
    "processes": sorted(set(processes)),
    "temporary": sorted(
        os.path.join(d, f) for d in ("/tmp", "/var/tmp", "/root", "/home/deploy")
        for f in os.listdir(d) if not f.startswith("systemd-private-")
    ),
    "caches": sorted(glob.glob("/data/glm53_exp/*")),
    "ballast": glob.glob("/var/lib/docker/.rollpin*") + glob.glob("/var/lib/rollpin/.*"),
    "files": tree("/var/lib/rollpin", "/run/rollpin"),
}))
"""


@dataclass(frozen=True)
class Snapshot:
    """What stands on a host. Containers by id: name, status, policy, image, start."""

    containers: dict[str, list[str]]
    images: list[str]
    volumes: list[str]
    networks: list[str]
    units: list[str]
    unit_files: list[str]
    processes: list[str]
    temporary: list[str]
    caches: list[str]
    ballast: list[str]
    files: dict[str, list[Any]] = field(default_factory=dict)

    def named(self, name: str) -> tuple[str, list[str]]:
        """(id, record) of the container of that name."""
        return next((i, c) for i, c in self.containers.items() if c[0] == name)

    def standing(self) -> dict[str, list[str]]:
        """The containers, without when they started."""
        return {i: c[:4] for i, c in self.containers.items()}


def look(host: Host) -> Snapshot:
    return Snapshot(**json.loads(host.run(["python3", "-"], stdin=_LOOK).stdout))


def look_at(hosts: Sequence[Host]) -> dict[str, Snapshot]:
    return dict(zip((h.name for h in hosts), side_by_side(look, hosts), strict=True))


def side_by_side(work: Callable[[Host], T], hosts: Sequence[Host]) -> list[T]:
    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(work, hosts))


def fresh(hosts: list[Host]) -> list[Host]:
    """The hosts as `lab up` left them."""
    side_by_side(Host.reset, hosts)
    return hosts


def differences(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """Everything that is not as it was, to the inode."""
    return {
        name: (old, new)
        for name, old in vars(before).items()
        if (new := getattr(after, name)) != old
    }


def left_over(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """What a release that failed has left or changed, but for what it is meant to leave: its
    record and logs, the image itself without a tag, and the cache dirs.
    """
    found: dict[str, Any] = {}
    if before.standing() != after.standing():
        found["containers"] = (before.standing(), after.standing())
    tagged = [i for i in after.images if "<none>" not in i and i not in before.images]
    if tagged or set(before.images) - set(after.images):
        found["images"] = (before.images, after.images)
    for name in ("volumes", "networks", "units", "unit_files", "processes", "temporary", "ballast"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            found[name] = (sorted(set(old) - set(new)), sorted(set(new) - set(old)))
    kept = rf"{STATE}(/glm53(/releases(/\d+(/.*)?)?|/journal\.jsonl)?|/mutate\.lock|/displaced)?$"
    new_files = [f for f in after.files if f not in before.files and not re.match(kept, f)]
    if files := [f for f in new_files if f != "/run/rollpin"]:
        found["files"] = files
    if gone := [f for f in before.files if f not in after.files and f.startswith(STATE)]:
        found["gone"] = gone
    return found


def journal(host: Host, service: str = "glm53") -> list[dict[str, Any]]:
    """The host's journal; every line must be JSON."""
    text = host.run(["cat", f"{STATE}/{service}/journal.jsonl"]).stdout
    return [json.loads(line) for line in text.splitlines()]


def release_json(host: Host, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        host.run(["cat", f"{RELEASES}/{number}/release.json"]).stdout
    )
    return found


def generation(host: Host, port: int = 30000) -> str:
    """What the service on that port answers to the recipe's prompt."""
    script = """
import json, sys, urllib.request
ask = {"model": "/data/hf_models/GLM-5.3-NVFP4", "temperature": 0, "messages": [
    {"role": "user", "content": "What is 7 times 6? Answer with the number only."}]}
request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/v1/chat/completions",
    json.dumps(ask).encode(), {"Content-Type": "application/json"})
answer = json.load(urllib.request.urlopen(request, timeout=20))
print(answer["choices"][0]["message"]["content"])
"""
    return host.run(["python3", "-", str(port)], stdin=script).stdout.strip()


def link(host: Host, service: str = "glm53") -> str:
    """Where RESTORE-<service> leads; "" without one."""
    return host.run(["readlink", f"{STATE}/RESTORE-{service}"], check=False).stdout.strip()


def profile(folder: Path, *changes: tuple[str, str], of: Path = LATEST, name: str = "") -> Path:
    """A copy of a profile with texts replaced; each must be there."""
    text = of.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / (f"{name}.env" if name else of.name)
    path.write_text(text)
    return path
