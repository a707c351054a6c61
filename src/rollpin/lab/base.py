"""Base trees: one per Debian suite for the hosts, one for the engine image. Built once, cached.

A tree lies at /var/cache/rollpin-lab/<name>-<key>, where the key is a hash of its recipe: a
changed recipe is another tree. Trees appear by a rename, so one that is there is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rollpin.errors import LabError
from rollpin.lab.machine import ELSEWHERE, apt_get, run
from rollpin.lab.state import CACHE, locked

# The host's part of a base tree, run in it by chroot.
PREPARE_HOST = r"""
useradd --create-home --shell /bin/bash deploy
install -d -m 0440 /etc/sudoers.d
echo 'deploy ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/deploy
chmod 0440 /etc/sudoers.d/deploy
install -d -m 0700 /root/.ssh
install -d -m 0700 -o deploy -g deploy /home/deploy/.ssh

# every host gets keys and an id of its own
rm -f /etc/ssh/ssh_host_* /var/lib/dbus/machine-id
: > /etc/machine-id
install -d /etc/ssh/sshd_config.d
cat > /etc/ssh/sshd_config.d/lab.conf <<'END'
HostKey /etc/ssh/ssh_host_ed25519_key
KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org
UseDNS no
PasswordAuthentication no
PermitRootLogin prohibit-password
END

systemctl enable systemd-networkd.service
systemctl mask systemd-networkd-wait-online.service console-getty.service getty@tty1.service \
    apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    dpkg-db-backup.timer systemd-pstore.service systemd-modules-load.service

for unit in docker.service docker.socket; do
    install -d /etc/systemd/system/$unit.d
    # the lab restarts docker more often than a machine should
    printf '[Unit]\nStartLimitIntervalSec=0\n' > /etc/systemd/system/$unit.d/lab.conf
done
printf '\n[Service]\nExecStartPre=/usr/local/sbin/lab-cgroups\n' \
    >> /etc/systemd/system/docker.service.d/lab.conf

cat > /usr/local/sbin/lab-cgroups <<'END'
#!/bin/sh
# nspawn mounts the v1 controllers read-only, and runc must make groups in them. A plain remount
# is "busy" (other hosts share the superblock); one of the bind mount is not. Nothing to do on v2.
[ -e /sys/fs/cgroup/cgroup.controllers ] && exit 0
for group in /sys/fs/cgroup /sys/fs/cgroup/*; do
    mount -o remount,bind,rw "$group" 2>/dev/null
done
exit 0
END
cat > /usr/local/bin/nvidia-container-runtime-hook <<'END'
#!/bin/sh
# dockerd offers --gpus when it finds a program of this name; the lab has no GPU to hand over
exit 0
END
chmod 0755 /usr/local/sbin/lab-cgroups /usr/local/bin/nvidia-container-runtime-hook
install -d /data /etc/docker /etc/cdi
rm -f /etc/apt/sources.list /etc/apt/apt.conf.d/99mmdebstrap /etc/hostname
"""

PREPARE_IMAGE = r"""
rm -rf /usr/share/perl* /usr/share/zoneinfo /usr/lib/*/gconv /usr/lib/*/perl* /usr/bin/perl* \
    /usr/lib/python3*/ensurepip /usr/lib/python3*/lib2to3 /usr/lib/python3*/idlelib \
    /usr/lib/python3*/distutils /usr/lib/python3*/pydoc_data /var/lib/dpkg/info \
    /usr/share/locale /usr/share/bash-completion /var/cache/debconf \
    /etc/apt/apt.conf.d/99mmdebstrap /etc/apt/sources.list
"""

_HOST_PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "sudo", "iproute2", "procps",
    "util-linux", "curl", "ca-certificates", "python3", "docker.io", "iptables",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """What makes a tree: everything that, when changed, must make another one."""

    name: str
    suite: str
    variant: str
    packages: tuple[str, ...]
    prepare: str
    excludes: tuple[str, ...] = (
        "/usr/share/man/*",
        "/usr/share/doc/*",
        "/usr/share/info/*",
        "/usr/share/locale/*",
        "/usr/share/zoneinfo/*",
    )

    @property
    def key(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def tree(self) -> Path:
        return CACHE / f"{self.name}-{self.key}"


HOSTS = {
    "bookworm": Recipe("bookworm", "bookworm", "minbase", _HOST_PACKAGES, PREPARE_HOST),
    "trixie": Recipe("trixie", "trixie", "minbase", (*_HOST_PACKAGES, "docker-cli"), PREPARE_HOST),
}
# "extract" unpacks without running any package's scripts: small and quick, and all it must do is
# run python3 and a shell
IMAGE = Recipe(
    "image",
    "bookworm",
    "extract",
    ("python3", "libpython3-stdlib", "dash", "coreutils", "libc-bin", "base-files"),
    PREPARE_IMAGE,
)


def mirror() -> str:
    """The Debian archive that this machine's own apt uses, or what ROLLPIN_LAB_MIRROR says."""
    named = os.environ.get("ROLLPIN_LAB_MIRROR")
    if named:
        return named
    for attempt in (1, 2):
        argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(ORIGIN)|$(RELEASE)"]
        for line in run([*argv, "Created-By: Packages"]).stdout.splitlines():
            uri, origin, release = line.split("|")
            if origin == "Debian" and "-" not in release:
                return uri
        if attempt == 1:
            # a machine that never updated does not know the origin of its sources
            apt_get("update", timeout=300)
    raise LabError(
        "This machine's apt knows no Debian archive, and the lab's hosts are Debian: set "
        f"ROLLPIN_LAB_MIRROR to the address of one. {ELSEWHERE}"
    )


def apt_options() -> list[str]:
    """How this machine's apt reaches its mirror (proxies, leniency), for another apt."""
    kept = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries")
    lines = run(["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n']).stdout.splitlines()
    return [f"--aptopt={line}" for line in lines if line.startswith(kept)]


def build(recipe: Recipe) -> bool:
    """Make the tree unless it is cached; returns whether it had to be made.

    The builder lives in namespaces of its own that end with us: a killed run leaves a draft
    folder, never a mount or a process, and the next run removes the draft.
    """
    if recipe.tree.exists():
        return False
    with locked(CACHE / "builds" / recipe.name):
        if recipe.tree.exists():
            return False
        drafts = CACHE / "builds" / recipe.name
        for stale in drafts.iterdir():
            _remove(stale)
        draft = drafts / recipe.key
        log = CACHE / f"{recipe.name}.log"
        log.unlink(missing_ok=True)
        fence = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork",
                 "--kill-child", "--mount-proc"]  # fmt: skip
        excludes = [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.excludes]
        run(
            [*fence, "mmdebstrap", "--mode=root", f"--variant={recipe.variant}",
             "--dpkgopt=force-unsafe-io", "--components=main", *excludes, *apt_options(),
             f"--include={','.join(recipe.packages)}",
             recipe.suite, str(draft), mirror()],
            timeout=900,
            log=log,
        )  # fmt: skip
        run([*fence, "chroot", str(draft), "/bin/sh", "-eu", "-c", recipe.prepare], log=log)
        (draft / "etc" / "resolv.conf").write_text("# the lab has no name server\n")
        for older in CACHE.glob(f"{recipe.name}-*"):
            # an older tree may still lie under a running host; overlayfs keeps what is open
            if older.is_dir() and not _in_use(older):
                _remove(older)
        draft.rename(recipe.tree)
    return True


def _in_use(tree: Path) -> bool:
    """Whether a lab's host names this tree as the one below it."""
    from rollpin.lab.state import STATE

    return any(note.read_text() == str(tree) for note in STATE.glob("*/hosts/*/base"))


def _remove(tree: Path) -> None:
    run(["rm", "-rf", "--one-file-system", str(tree)], timeout=300)


def purge() -> None:
    """Drop the cache, drafts and logs included. Running hosts must not need it any more."""
    if CACHE.exists():
        _remove(CACHE)
    shutil.rmtree(CACHE, ignore_errors=True)
