"""The machine that carries the lab: what it must have, and how its programs are run.

Everything here is about the outer machine, never about a lab host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from rollpin.errors import LabError

ELSEWHERE = (
    "Without a lab, point an inventory at hosts of your own: a file with "
    '`hosts = [("gpu1", {"ssh_hostname": "10.0.0.5"})]`, or `@local` for this machine.'
)

# program -> the Debian/Ubuntu package that brings it
PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
}
DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    timeout: float = 60,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program of this machine to its end.

    With `log`, its output goes to that file instead of the result. Raises LabError when it cannot
    be started, is over `timeout` seconds, or (with `check`) ends with a status other than 0.
    """
    sink = log.open("ab") if log else None
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=sink or subprocess.PIPE,
            stderr=sink or subprocess.PIPE,
            text=True,
            timeout=timeout,
            env={**os.environ, **(env or {}), "LC_ALL": "C.UTF-8"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{argv[0]} was still running after {timeout:.0f} s: {argv}") from error
    except OSError as error:
        raise LabError(f"{argv[0]} could not be started: {error}") from error
    finally:
        if sink:
            sink.close()
    if check and done.returncode != 0:
        said = f"see {log}" if log else (done.stderr or done.stdout).strip()
        raise LabError(f"{' '.join(argv)} ended with status {done.returncode}: {said}")
    return done


def missing_programs() -> dict[str, str]:
    """The programs that the lab needs and this machine lacks, with the package of each."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = {
        program: package
        for program, package in PROGRAMS.items()
        if shutil.which(program, path=path) is None
    }
    if not DEBIAN_KEYRING.exists():
        lacking["the keys of the Debian archive"] = "debian-archive-keyring"
    return lacking


def require_root() -> None:
    """Raises LabError unless we are root on Linux."""
    if os.geteuid() != 0:
        raise LabError(f"The lab needs root (it boots systemd-nspawn hosts). {ELSEWHERE}")


def prepare() -> list[str]:
    """Install what is missing; returns the packages that were installed.

    Raises LabError in one sentence when the machine cannot carry a lab.
    """
    require_root()
    if "overlay" not in Path("/proc/filesystems").read_text():
        run(["modprobe", "overlay"], check=False)
    packages = sorted(set(missing_programs().values()))
    if packages:
        if shutil.which("apt-get") is None:
            raise LabError(
                f"The lab needs {', '.join(packages)}, and there is no apt-get to install them. "
                f"{ELSEWHERE}"
            )
        apt_get("update", timeout=300)
        apt_get("install", "--yes", "--no-install-recommends", *packages, timeout=600)
    still = missing_programs()
    if still:
        raise LabError(f"The lab still lacks {', '.join(still)} after installing. {ELSEWHERE}")
    return packages


def apt_get(*words: str, timeout: float, cwd: Path | None = None) -> None:
    """apt-get, never asking anything. Raises LabError with what it said last."""
    argv = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", *words]
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"apt-get {words[0]} was still running after {timeout:.0f} s") from error
    if done.returncode != 0:
        raise LabError(f"apt-get {' '.join(words)} failed: {done.stderr.strip()[-2000:]}")


def program(name: str, cache: Path) -> str:
    """Path of a program that we would rather not install as a service of this machine.

    Debian's docker-registry package starts a registry on port 5000; so when it is not there
    already, the package is only unpacked into the cache.
    """
    found = shutil.which(name)
    if found:
        return found
    unpacked = cache / "tools" / name
    binary = unpacked / "usr" / "bin" / name
    if not binary.exists():
        require_root()
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir(parents=True)
        # apt's download user (_apt) must be able to write here
        unpacked.chmod(0o777)
        apt_get("update", timeout=300)
        apt_get("download", name, timeout=300, cwd=unpacked)
        package = next(iter(unpacked.glob("*.deb")), None)
        if package is None:
            raise LabError(f"apt-get download {name} brought no package")
        run(["dpkg-deb", "-x", str(package), str(unpacked)])
        unpacked.chmod(0o755)
    return str(binary)
