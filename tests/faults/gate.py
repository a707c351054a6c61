"""Where a script of rollpin can be stopped: before each command of it that changes something.

Shims stand before `docker`, `mv` and `systemd-run` on the host. They count the commands that change
the host, write them down, and hold the n-th one until the gate opens. What they saw is read from
outside, through the host's init, so also while nobody can log in.
"""

from __future__ import annotations

import re
from pathlib import Path

from rollpin.lab.host import Host
from tests.lab.controller import processes

DIR = "run/rollpin-lab/gate"
_NAMES = ("docker", "mv", "systemd-run")

# Without its directory (after a reboot) a shim only hands on.
_SHIM = rf"""#!/bin/sh
dir=/{DIR}
name=${{0##*/}}
if [ -d $dir ]; then
    case "$name $*" in
    'docker create '* | 'docker rename '* | 'docker update '* | 'docker stop '* | \
    'docker start '* | 'docker rm '* | 'docker rmi '* | 'docker tag '* | 'docker pull '* | \
    'docker run '* | 'systemd-run '*rollpin-* | 'mv -T /var/lib/rollpin/'*/releases/*/[.acr]*)
        n=$(flock $dir/lock sh -c 'n=$(($(cat $0/count) + 1)); echo $n >$0/count; echo $n' $dir)
        printf '%s %s\n' "$name" "$*" | tr '\n' ' ' | cut -c1-600 >$dir/seen.$n
        if [ "$n" = "$(cat $dir/hold)" ]; then
            : >$dir/reached
            while [ -e $dir/hold ] && [ ! -e $dir/open ]; do sleep 0.03; done
        fi
        ;;
    esac
fi
exec /usr/bin/$name "$@"
"""


class Counter:
    """The shims of one host, set to hold the n-th command; 0 holds none."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def install(self, hold: int = 0) -> None:
        names = " ".join(f"/usr/local/sbin/{name}" for name in _NAMES)
        self.host.run(
            f"rm -rf /{DIR}; mkdir -p /{DIR}; cat >/usr/local/sbin/.shim;"
            f" chmod 755 /usr/local/sbin/.shim;"
            f" for f in {names}; do ln -f /usr/local/sbin/.shim $f; done;"
            f" echo 0 >/{DIR}/count; echo {hold} >/{DIR}/hold",
            stdin=_SHIM,
        )

    def remove(self) -> None:
        """The host without it; what it held goes on."""
        names = " ".join(f"/usr/local/sbin/{name}" for name in (*_NAMES, ".shim"))
        self.host.run(f"rm -rf {names} /{DIR}", check=False)

    def inside(self, path: str) -> Path | None:
        """A path of the host as this machine sees it; None while the host is off."""
        for init in processes(self.host, "systemd")[:1]:
            return Path(f"/proc/{init}/root/{path}")
        return None

    def reached(self) -> bool:
        path = self.inside(f"{DIR}/reached")
        return path is not None and path.exists()

    def open(self) -> None:
        path = self.inside(f"{DIR}/open")
        if path is not None and path.parent.exists():
            path.touch()

    def count(self) -> int:
        path = self.inside(f"{DIR}/count")
        try:
            return int(path.read_text()) if path else 0
        except (OSError, ValueError):
            return 0

    def seen(self) -> list[str]:
        """The commands so far, in order."""
        folder = self.inside(DIR)
        if folder is None:
            return []
        found = sorted(folder.glob("seen.*"), key=lambda p: int(p.suffix[1:]))
        return [p.read_text().strip() for p in found]


def plain(command: str, names: dict[str, str]) -> str:
    """A command as it is called in every run: ids by the names they had, no transaction."""
    words = []
    for word in command.split():
        bare = word.rsplit("/", 1)[-1]
        if re.fullmatch(r"[0-9a-f]{64}", word):
            words.append(names.get(word, "the-new-one"))
        elif word.startswith("/var/lib/rollpin/"):
            words.append(bare)
        elif word.startswith("--unit="):
            words.append("-".join(word.removeprefix("--unit=").split("-")[:2]))
        else:
            words.append(word)
    if words[0] == "systemd-run":
        words = ["systemd-run", next((w for w in words if w.startswith("rollpin-")), "?")]
    if words[:2] in (["docker", "create"], ["docker", "run"]):
        words = words[:2]
    if words[:2] == ["docker", "tag"] or words[:2] == ["docker", "rmi"]:
        words = [*words[:2], "rollpin/…"]
    return re.sub(r"\.r\d+\b", ".rN", " ".join(words))
