"""A deploy as a process of its own, to be hurt: `pyinfra -y inventory/lab.py deploys/…`.

Nothing here sleeps for a while and hopes: a test waits for a line of the controller's output, for
a state file on the host, or for a docker command that a `Gate` holds.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rollpin.errors import LabError, Lost, StepFailed
from rollpin.lab import cgroups, furnish
from rollpin.lab.host import Host
from rollpin.verdict import Word

ROOT = Path(__file__).parents[2]
PYINFRA = str(Path(sys.executable).with_name("pyinfra"))
STATE = "/var/lib/rollpin"
LINK = f"{STATE}/RESTORE-glm53"

QUICK = {
    "ROLLPIN_LAB_LOAD_SECONDS": "0.1",
    "ROLLPIN_LAB_COLD_SECONDS": "0.1",
    "ROLLPIN_LAB_WARMUP_SECONDS": "0.05",
    "ROLLPIN_LAB_HEALTH_SECONDS": "0.1",
}


class Controller:
    """One run of a deploy on one host. Leaving the block ends it, by SIGKILL if it must be."""

    def __init__(
        self,
        host: Host,
        deploy: str = "glm53",
        *,
        engine: dict[str, str] | None = None,
        terminal: bool = False,
        **data: str,
    ) -> None:
        """`engine`: variables of the lab engine; `data`: `--data` of the run. `terminal`: it runs
        on a terminal of its own, which `hang_up` takes away.
        """
        words = ["-y", "inventory/lab.py", f"deploys/{deploy}.py", "--limit", host.name]
        if deploy == "glm53":
            given = {"lease": "5s", "rollpin_idle": "0s", "rollpin_settle": "0.3s", **data}
            env = {**QUICK, "X": os.urandom(6).hex(), **(engine or {})}
            given["rollpin_env"] = json.dumps(env)
        else:
            given = data
        for key, value in given.items():
            words += ["--data", f"{key}={value}"]
        self.host = host
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._hung_up = False
        # setsid makes the terminal the controlling one of the new session
        argv = ["setsid", "--ctty", "--wait", PYINFRA, *words] if terminal else [PYINFRA, *words]
        self._master, outlet = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, "ROLLPIN_LAB": host.lab.name, "PYTHONUNBUFFERED": "1"},
            stdin=outlet if terminal else subprocess.DEVNULL,
            stdout=outlet,
            stderr=outlet,
            start_new_session=not terminal,
        )
        os.close(outlet)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        rest = b""
        with suppress(OSError):  # how a terminal ends
            while not self._hung_up:
                # closing would not count while a read is under way
                if not select.select([self._master], [], [], 0.05)[0]:
                    continue
                if not (chunk := os.read(self._master, 65536)):
                    break
                *lines, rest = (rest + chunk).split(b"\n")
                with self._news:
                    self.lines += [x.decode(errors="replace").rstrip("\r") for x in lines]
                    self._news.notify_all()
        os.close(self._master)
        with self._news:
            self._ended = True
            self._news.notify_all()

    def __enter__(self) -> Controller:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(10)
        if error is not None:
            error.add_note(f"--- the controller on {self.host.name} said:\n{self.output}")

    @property
    def output(self) -> str:
        with self._news:
            return "\n".join(self.lines)

    def wait_for(self, text: str, deadline: float = 60) -> str:
        """The first line with that text, as soon as it is said."""
        end = time.monotonic() + deadline
        seen = 0
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    if text in line:
                        return line
                seen = len(self.lines)
                left = end - time.monotonic()
                assert not self._ended, f"it ended without saying {text!r}"
                assert left > 0, f"it did not say {text!r} within {deadline:g} s"
                self._news.wait(left)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As the OOM killer or a lost machine would."""
        self.process.kill()
        self.process.wait(10)

    def hang_up(self) -> None:
        """Its terminal goes away: SIGHUP, and nothing can be said any more."""
        self._hung_up = True
        self._reader.join(10)

    def end(self, deadline: float = 60) -> int:
        """Its exit status, within `deadline` seconds."""
        try:
            status = self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended within {deadline:g} s") from None
        self._reader.join(10)
        return status

    def verdict(self) -> str:
        """The line of the host in the summary, and the reason below it."""
        head = f"{self.host.name}: glm53 "
        lines = self.output.splitlines()
        start = next((n for n, x in enumerate(lines) if x.startswith("--> Verdicts:")), len(lines))
        for n in range(start, len(lines)):
            if lines[n].startswith(head):
                return "\n".join(lines[n : n + 2])
        raise AssertionError("no verdict was printed")

    def word(self) -> str:
        """The word of the verdict."""
        rest = self.verdict().removeprefix(f"{self.host.name}: glm53 ")
        words = sorted((w.value for w in Word), key=len, reverse=True)
        return next(w for w in words if rest.startswith(f"{w}, "))


def side_by_side(hosts: Sequence[Host], work: Callable[[Host], Any]) -> list[Any]:
    """`work` on every host at once; every error once all have ended."""
    with ThreadPoolExecutor(len(hosts)) as pool:
        done = [pool.submit(work, host) for host in hosts]
    errors = [error for future in done if (error := future.exception())]
    if errors:
        raise BaseExceptionGroup("side by side", errors)
    return [future.result() for future in done]


# --- what stands on a host -----------------------------------------------------------------------

# One `key value` a line. Containers by id, so that a new one of the same name is seen.
_LOOK = r"""
ids=$(docker ps -aq --no-trunc) || exit 1
[ -z "$ids" ] || docker inspect --format \
    'container {{.Id}} {{.Name}} {{.State.Status}} '\
'{{.HostConfig.RestartPolicy.Name}}:{{.HostConfig.RestartPolicy.MaximumRetryCount}}' $ids || exit 1
docker image ls --format 'tag {{.Repository}}:{{.Tag}}' | grep '^tag rollpin/'
docker volume ls -q | sed 's/^/volume /'
# a boot unit that has removed itself stays in systemd's memory, dead
systemctl list-units --all --plain --no-legend 'rollpin-*' | grep -v ' inactive *dead ' |
    sed 's/^/unit /'
find /etc/systemd/system -name '*rollpin*' | sed 's/^/file /'
find /run/rollpin -mindepth 1 2>/dev/null | sed 's/^/file /'
find /var/lib/rollpin -mindepth 1 -maxdepth 1 \( -name 'RESTORE-*' -o -name '.*' \) \
    -printf 'file %p %l\n' 2>/dev/null
find /var/lib/rollpin/displaced -type f 2>/dev/null | sed 's/^/file /'
root=$(docker info --format '{{.DockerRootDir}}')
find "$root" -maxdepth 1 -name '.rollpin*' | sed 's/^/file /'
for release in /var/lib/rollpin/*/releases/*/; do
    [ -d "$release" ] || continue
    state=staged
    for f in armed restoring restored rolling-back rolled-back committed; do
        [ -e "$release$f" ] && state=$f
    done
    case $state in restored | rolled-back) ;; *) echo "release $release $state" ;; esac
done
find /tmp /root -maxdepth 1 -name '*pyinfra*' | sed 's/^/file /'
exit 0
"""


def look(host: Host) -> list[str]:
    """Containers, tags, units, files and open or committed releases, as sorted lines."""
    return sorted(host.run(_LOOK).stdout.splitlines())


def await_look(host: Host, wanted: list[str], deadline: float = 10) -> None:
    """Return once the host looks as `wanted` (ended units go a moment later)."""
    end = time.monotonic() + deadline
    while True:
        try:
            now = look(host)
        except (Lost, StepFailed):
            now = ["it does not answer"]
        if now == wanted:
            return
        if time.monotonic() > end:
            gone = [f"- {x}" for x in wanted if x not in now]
            more = [f"+ {x}" for x in now if x not in wanted]
            raise AssertionError(
                f"{host.name} is not as it was after {deadline:g} s:\n" + "\n".join(gone + more)
            )
        time.sleep(0.1)


def untouched_since(host: Host) -> str:
    """When its containers were started: equal while nothing was stopped."""
    return host.run(
        "docker ps -q --no-trunc | sort |"
        " xargs -r docker inspect --format '{{.Id}} {{.State.StartedAt}}'"
    ).stdout


def furnished(host: Host) -> list[str]:
    """The host with production serving and nothing of rollpin on it: how it looks then."""
    try:
        host.wait_up(5)
        now = look(host)
    except (Lost, StepFailed, LabError):
        now = []
    names = sorted(x.split()[2] for x in now if x.startswith("container "))
    wanted = ["/dsv4_scan"] if host.name == host.lab.seats[0].name else []
    whole = names == [*wanted, "/glm53-pp4"] and all(" running " in x for x in now)
    if not whole:
        host.reset()
        now = look(host)
    furnish.wait_healthy(host)
    return now


def as_it_was(host: Host, before: list[str], deadline: float = 10) -> None:
    """The same containers serve with the same policies, and nothing of a release is left."""
    await_look(host, before, deadline)
    furnish.wait_healthy(host)


def await_on_host(host: Host, condition: str, deadline: float = 30) -> None:
    """Return once the shell condition holds on the host; watched from there, without pauses."""
    script = f"n=0; until {condition}; do n=$((n + 1)); [ $n -lt {deadline * 50:.0f} ] || exit 9;"
    answer = host.run(f"{script} sleep 0.02; done", check=False, timeout=deadline * 2 + 10)
    assert answer.status == 0, f"{host.name}: not within {deadline:g} s: {condition}"


def release_file(name: str) -> str:
    """A shell condition: some release of glm53 is in that state."""
    return f"ls {STATE}/glm53/releases/*/{name} >/dev/null 2>&1"


def journal(host: Host) -> list[dict[str, Any]]:
    text = host.run(f"cat {STATE}/glm53/journal.jsonl 2>/dev/null || true").stdout
    return [json.loads(line) for line in text.splitlines()]


def by_hand(host: Host) -> None:
    """Back with nothing but a shell."""
    host.run(["sh", LINK], timeout=120)


# --- where it is hurt ----------------------------------------------------------------------------

# Found before the real docker by every script of rollpin, by dial-stdio and by people.
_SHIM = r"""#!/bin/sh
dir=/run/rollpin-lab/gate
if [ -e $dir/closed ]; then
    case " $* " in *"$(cat $dir/closed)"*)
        : >$dir/reached
        while [ -e $dir/closed ]; do sleep 0.05; done
        ;;
    esac
fi
exec "/usr/bin/${0##*/}" "$@"
"""


class Gate:
    """Holds the command whose words contain `words`, before docker (or whoever) is asked."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def close(self, words: str) -> None:
        self.host.run(
            "mkdir -p /run/rollpin-lab/gate; rm -f /run/rollpin-lab/gate/reached;"
            " cat >/run/rollpin-lab/gate/closed",
            stdin=words,
        )

    def reached(self, deadline: float = 60) -> None:
        await_on_host(self.host, "[ -e /run/rollpin-lab/gate/reached ]", deadline)

    def open(self) -> None:
        """From outside, so also while nobody can log in."""
        for init in processes(self.host, "systemd")[:1]:
            Path(f"/proc/{init}/root/run/rollpin-lab/gate/closed").unlink(missing_ok=True)


@contextmanager
def gate(host: Host, words: str, program: str = "docker") -> Iterator[Gate]:
    """A gate that is closed for these words; the host is without it afterwards."""
    shim = f"/usr/local/sbin/{program}"
    host.run(f"cat >{shim} && chmod 755 {shim}", stdin=_SHIM)
    one = Gate(host)
    one.close(words)
    try:
        yield one
    finally:
        one.open()
        host.run(["rm", "-f", shim])


@contextmanager
def without_image(host: Host) -> Iterator[None]:
    """There is something to pull."""
    host.run(
        "docker image ls --digests --format '{{.Repository}}@{{.Digest}} {{.Tag}}'"
        " | sed -n 's/ <none>$//p' | xargs -r docker rmi"
    )
    yield


def processes(host: Host, *names: str) -> list[int]:
    """Pids, as this machine sees them, of the host's processes of these names."""
    found = []
    for pid in sorted(cgroups.members(host.lab.name, host.name)):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name in names:
            found.append(pid)
    return found


SSHD = ("sshd", "sshd-session", "sshd-auth")


def send(host: Host, number: signal.Signals, *names: str) -> int:
    """Signals the host's processes of these names, from outside; how many there were."""
    pids = processes(host, *names)
    for pid in pids:
        os.kill(pid, number)
    return len(pids)


@contextmanager
def frozen(host: Host, *names: str) -> Iterator[None]:
    """The host's processes of these names stand still in the block. Default: every sshd."""
    chosen = names or SSHD
    assert send(host, signal.SIGSTOP, *chosen), f"{host.name} has no {chosen}"
    try:
        yield
    finally:
        send(host, signal.SIGCONT, *chosen)
