"""What a restore needs is on the disk before anything is stopped: read off the system calls.

A lab host that loses its power keeps its page cache (its init is killed, not its kernel), so no
power cut here can prove a sync. This trace does: of every file that a deploy writes below the
state directory and below /etc/systemd, the file is synced after its last write and its directory
after its last entry, and both before `docker stop`.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollpin.lab import machine
from rollpin.lab.host import Host

from .controller import QUICK, Controller, furnished, processes

KEPT = ("/var/lib/rollpin/", "/etc/systemd/system/")
# Logs of the run itself, and what is rewritten while it goes on: nothing needs them to go back.
_PASSING = re.compile(r"/logs/|/mutate\.lock$|/\.ballast$|\.part$|\.jsonl$")
_CALLS = "openat,rename,renameat,renameat2,fsync,fdatasync,syncfs,symlinkat,linkat,mkdir,execve"


@contextmanager
def traced(host: Host, log: Path) -> Iterator[None]:
    """Everything that the host's init and its sshd start from here on."""
    if shutil.which("strace") is None:
        machine.apt_get("install", "--yes", "--no-install-recommends", "strace", timeout=300)
    pids = processes(host, "systemd", "sshd")
    words = [word for pid in pids for word in ("-p", str(pid))]
    argv = ["strace", "-f", "-y", "-s", "400", "-e", f"trace={_CALLS}", "-o", str(log), *words]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        for _ in pids:
            assert "attached" in strace.stderr.readline()
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)
            strace.stderr.read()


def _path(cwd: str, name: str) -> str:
    return name if name.startswith("/") else f"{cwd.rstrip('/')}/{name}"


def unsynced_at_the_first_stop(log: str) -> tuple[int, list[str]]:
    """How many files were written before the first `docker stop`, and which of them, or of the
    directories that list them, were not synced after.
    """
    dirty_files: set[str] = set()
    dirty_folders: set[str] = set()
    seen: set[str] = set()
    for line in log.splitlines():
        _, _, call = line.partition(" ")
        call = call.strip()
        if re.search(r'execve\("[^"]*docker", \["docker", "stop"', call):
            left = sorted(dirty_files) + [f"{x}/" for x in sorted(dirty_folders)]
            return len(seen), left
        if " = -1 " in call:
            continue
        if found := re.match(r'openat\([^<,]*(?:<([^>]*)>)?, "([^"]+)", (\S+)', call):
            name = _path(found[1] or "", found[2])
            if "O_CREAT" in found[3] and _counts(name):
                seen.add(name)
                dirty_files.add(name)
                dirty_folders.add(name.rpartition("/")[0])
        elif found := re.match(
            r'rename(?:at2?)?\((?:[^<"]*<([^>]*)>, )?"([^"]+)", (?:[^<"]*<([^>]*)>, )?"([^"]+)"',
            call,
        ):
            old, new = _path(found[1] or "", found[2]), _path(found[3] or "", found[4])
            if new.startswith(KEPT) and "/logs/" not in new:
                seen.add(new)
                # The content goes along; what was synced under its old name stays so.
                if old in dirty_files or _PASSING.search(old):
                    dirty_files.add(new)
                dirty_files.discard(old)
                dirty_folders.add(new.rpartition("/")[0])
        elif found := re.match(r'symlinkat\("[^"]*", [^<]*(?:<([^>]*)>)?, "([^"]+)"', call):
            name = _path(found[1] or "", found[2])
            if name.startswith(KEPT):
                seen.add(name)
                dirty_folders.add(name.rpartition("/")[0])
        elif found := re.match(r"(?:fsync|fdatasync)\(\d+<([^>]*)>", call):
            dirty_files.discard(found[1])
            dirty_folders.discard(found[1])
        elif call.startswith("syncfs("):
            dirty_files.clear()
            dirty_folders.clear()
    raise AssertionError("no `docker stop` is in the trace")


def _counts(name: str) -> bool:
    return name.startswith(KEPT) and not _PASSING.search(name)


def test_all_is_on_the_disk_before_the_first_stop(host: Host, tmp_path: Path) -> None:
    furnished(host)
    log = tmp_path / "trace"
    with traced(host, log), Controller(host, lease="60s", engine=QUICK) as run:
        assert run.end(180) == 0
    count, left = unsynced_at_the_first_stop(log.read_text(errors="replace"))
    assert left == []
    # scripts, records, notes, links, the boot unit: the trace has seen them
    assert count > 15


def test_the_trace_would_tell() -> None:
    stop = '9 execve("/usr/bin/docker", ["docker", "stop", "-t", "9", "x"], 0x1) = 0'
    made = '7 openat(AT_FDCWD</var/lib/rollpin/a>, "b", O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3'
    file, folder = (
        "7 fsync(3</var/lib/rollpin/a/b>) = 0",
        "7 fsync(3</var/lib/rollpin/a>) = 0",
    )
    whole = [made, file, folder, stop]
    assert unsynced_at_the_first_stop("\n".join(whole)) == (1, [])
    for missing, left in ((file, "/var/lib/rollpin/a/b"), (folder, "/var/lib/rollpin/a/")):
        rest = [x for x in whole if x != missing]
        assert unsynced_at_the_first_stop("\n".join(rest)) == (1, [left])
    late = [made, stop, file, folder]
    assert unsynced_at_the_first_stop("\n".join(late))[1] == [
        "/var/lib/rollpin/a/b",
        "/var/lib/rollpin/a/",
    ]
