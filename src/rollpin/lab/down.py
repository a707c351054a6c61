"""`rollpin lab down`: nothing of the lab is left, whatever state it was in."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path

from rollpin.errors import LabError
from rollpin.lab import base, cgroups, machine, network, process, state

NSPAWN = Path("/run/systemd/nspawn")


def down(name: str, *, purge: bool = False) -> bool:
    """Remove the lab; returns whether there was anything to remove.

    With `purge` the cache goes too, unless another lab stands on it (then LabError, after this
    lab is gone).
    """
    machine.require_root()
    state.checked_name(name)
    there = state.directory(name).exists() or bool(network.links(name))
    if there:
        with state.locked(state.directory(name)):
            sweep(name)
            _remove_state(name)
    else:
        sweep(name)
    if purge:
        others = [lab.name for lab in state.all_labs()]
        if others:
            raise LabError(
                f"The cache was kept: the labs {', '.join(others)} stand on it. "
                "Take them down first."
            )
        base.purge()
    return there


def sweep(name: str) -> None:
    """Everything outside the lab's folder: processes, groups, interfaces, nspawn's own notes.

    The supervisors go first, so that no host is booted again; then the bridge; the unreachable
    route last. What an interrupted removal left of the folder goes also.
    """
    _remove(_dying(name))
    process.kill_folder(state.directory(name))
    left = cgroups.kill(name)
    if left:
        raise LabError(f"These processes of the lab would not end: {sorted(left)}")
    stuck = cgroups.remove(name)
    if stuck:
        raise LabError(f"These control groups would not go: {', '.join(map(str, stuck))}")
    network.down(name, [lab.subnet for lab in state.all_labs() if lab.name != name])
    _nspawn_notes(name)


def _nspawn_notes(name: str) -> None:
    """nspawn leaves a folder per machine name in /run, and its locks."""
    for folder in ("propagate", "unix-export"):
        for path in (NSPAWN / folder).glob(f"{network.mark(name)}-*"):
            machine.run(["umount", "--lazy", str(path)], check=False)
            with suppress(OSError):
                path.rmdir()
    for path in (NSPAWN / "locks").glob("inode-*"):
        # named after a folder's inode, not after a lab: those that nobody holds are dead
        if not _held(path):
            path.unlink(missing_ok=True)
    for path in (NSPAWN / "locks", NSPAWN / "propagate", NSPAWN / "unix-export", NSPAWN):
        with suppress(OSError):
            path.rmdir()


def _held(lock: Path) -> bool:
    """Whether a process holds systemd's lock on this file."""
    try:
        with lock.open("r+b") as handle:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _remove_state(name: str) -> None:
    """The lab's folder, with whatever a run of an older kind left mounted in it."""
    folder = state.directory(name)
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted(mounts, reverse=True):
        if mount.startswith(f"{folder}/"):
            machine.run(["umount", "--lazy", mount])
    # in one step, so that a run that ends here leaves no half a lab for the next `up`
    folder.rename(_dying(name))
    _remove(_dying(name))


def _dying(name: str) -> Path:
    """A lab's folder on its way out; no lab can have this name."""
    return state.STATE / f"{name}.dying"


def _remove(folder: Path) -> None:
    machine.run(["rm", "-rf", "--one-file-system", str(folder)], timeout=300)
    with suppress(OSError):
        # goes with the last lab
        state.STATE.rmdir()
