"""Where a lab keeps its things, and what it remembers of itself.

    /var/lib/rollpin-lab/<lab>/          lab.json, the keys, one folder per host, the registry
    /var/cache/rollpin-lab/              base trees and image layers, shared by all labs

`lab.json` is written once the bridge and the hosts are decided and again when the images are
known; a lab without it is not up.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rollpin.errors import LabError, UsageError

STATE = Path("/var/lib/rollpin-lab")
CACHE = Path("/var/cache/rollpin-lab")
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


@dataclass(frozen=True)
class Seat:
    """One host's place in a lab: who it is, where, and of which generation."""

    name: str
    address: str
    suite: str  # Debian's code name
    engine: str  # "classic", "cdi" or "containerd": what its dockerd is configured for


@dataclass(frozen=True)
class Lab:
    """A lab as lab.json tells it. `images` maps a tag to the manifest digest at `lab up`."""

    name: str
    bridge: str
    subnet: str
    gateway: str
    seats: tuple[Seat, ...]
    images: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return directory(self.name)

    @property
    def key(self) -> Path:
        """The private key that root and deploy of every host accept."""
        return self.directory / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def registry(self) -> str:
        """Address and port of the lab's registry, as image references begin."""
        return f"{self.gateway}:5000"

    def seat(self, host: str) -> Seat:
        """Raises UsageError when the lab has no such host."""
        for seat in self.seats:
            if seat.name == host:
                return seat
        known = ", ".join(seat.name for seat in self.seats)
        raise UsageError(f"The lab {self.name!r} has no host {host!r}; it has {known}.")

    def host_directory(self, host: str) -> Path:
        return self.directory / "hosts" / host

    def with_images(self, images: dict[str, str]) -> Lab:
        return replace(self, images=dict(images))


def default_name() -> str:
    """The lab that ROLLPIN_LAB names, else `lab`."""
    return os.environ.get("ROLLPIN_LAB") or "lab"


def checked_name(name: str) -> str:
    """The name, or UsageError: it becomes part of paths and of interface names."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a lab: use small letters, digits and '-', a letter first."
        )
    return name


def directory(name: str) -> Path:
    return STATE / checked_name(name)


def exists(name: str) -> bool:
    return (directory(name) / "lab.json").exists()


def load(name: str | None = None) -> Lab:
    """The lab of that name (default: ROLLPIN_LAB). Raises LabError when it is not up."""
    name = name or default_name()
    try:
        text = (directory(name) / "lab.json").read_text()
    except FileNotFoundError as error:
        raise LabError(f"The lab {name!r} is not up: run `rollpin lab up`.") from error
    except PermissionError as error:
        raise LabError(f"The lab {name!r} can only be used by root.") from error
    known = json.loads(text)
    return Lab(**{**known, "seats": tuple(Seat(**seat) for seat in known["seats"])})


def save(lab: Lab) -> None:
    """Write lab.json in one atomic step."""
    path = lab.directory / "lab.json"
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(asdict(lab), indent=2) + "\n")
    draft.rename(path)


def all_labs() -> list[Lab]:
    """Every lab of this machine that has a readable lab.json."""
    found = []
    for path in sorted(STATE.glob("*/lab.json")):
        # one may go down while we look; one that is going down has a name that no lab can have
        with suppress(LabError, UsageError):
            found.append(load(path.parent.name))
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a folder for us alone; waits for whoever holds it.

    The lock is on the folder itself, so that it leaves no file, ends with its process, and is
    taken again when the folder was removed and made anew while we waited.
    """
    while True:
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                current = path.stat().st_ino == os.fstat(handle).st_ino
            except FileNotFoundError:
                current = False
            if current:
                yield
                return
        finally:
            os.close(handle)
