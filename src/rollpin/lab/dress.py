"""What makes a base tree one particular host: names, keys, address, engine settings.

Written into the host's own layer before its first boot.
"""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

from rollpin.lab import base, model
from rollpin.lab.machine import run
from rollpin.lab.state import Lab, Seat

GPUS = 8
# the folders of a host besides its layer: mount point, overlayfs' own, and what is bound in
FOLDERS = ("upper", "work", "root", "docker", "containerd", "data")


def make(lab: Lab, seat: Seat) -> bool:
    """Make the host's folders and its own files; returns False when that was done before."""
    own = lab.host_directory(seat.name)
    if (own / "dressed").exists():
        return False
    for name in FOLDERS:
        (own / name).mkdir(parents=True, exist_ok=True)
    tree = base.HOSTS[seat.suite].tree
    (own / "base").write_text(str(tree))
    upper = own / "upper"
    upper.chmod(0o755)
    _address(upper, lab, seat)
    _keys(upper, lab, tree)
    _host_key(upper, lab, seat)
    _engine(upper, lab, seat)
    model.write(own / "data" / "hf_models")
    (own / "dressed").touch()
    return True


def _put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _address(upper: Path, lab: Lab, seat: Seat) -> None:
    _put(upper / "etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)
    _put(upper / "etc/hostname", f"{seat.name}\n")
    # sudo resolves the host's own name; without an answer here it would wait for a name server
    peers = "".join(f"{other.address} {other.name}\n" for other in lab.seats)
    _put(upper / "etc/hosts", f"127.0.0.1 localhost\n{peers}{lab.gateway} registry\n")
    _put(
        upper / "etc/systemd/network/10-lab.network",
        "[Match]\nName=host0\n\n[Network]\n"
        f"Address={seat.address}/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
    )


def _keys(upper: Path, lab: Lab, tree: Path) -> None:
    public = lab.key.with_suffix(".pub").read_text()
    for home in ("root", "home/deploy"):
        # a folder of the upper layer hides the mode and owner of the one below
        for part in (Path(home), Path(home, ".ssh")):
            below = (tree / part).stat()
            (upper / part).mkdir(parents=True, exist_ok=True)
            (upper / part).chmod(below.st_mode & 0o7777)
            shutil.chown(upper / part, below.st_uid, below.st_gid)
        keys = upper / home / ".ssh" / "authorized_keys"
        _put(keys, public, 0o600)
        owner = (tree / home).stat()
        shutil.chown(keys, owner.st_uid, owner.st_gid)


def _host_key(upper: Path, lab: Lab, seat: Seat) -> None:
    """The host's SSH key, made here, so that it is known before the first connection."""
    path = upper / "etc/ssh/ssh_host_ed25519_key"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", seat.name, "-f", str(path)])


def _engine(upper: Path, lab: Lab, seat: Seat) -> None:
    daemon: dict[str, object] = {
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "insecure-registries": [lab.registry],
    }
    if seat.engine == "cdi":
        daemon["features"] = {"cdi": True}
        _put(upper / "etc/cdi/nvidia.yaml", cdi_specification())
    if seat.engine == "containerd":
        daemon["features"] = {"containerd-snapshotter": True}
    _put(upper / "etc/docker/daemon.json", json.dumps(daemon, indent=2) + "\n")


def cdi_specification() -> str:
    """A stand-in for what nvidia-ctk writes: the same device names, nothing to hand over.

    JSON is YAML; a device must edit something, so the engine finds a mark in its environment.
    """
    marks = [f"ROLLPIN_LAB_GPU_{gpu}=1" for gpu in range(GPUS)]
    given = {"all": marks} | {str(gpu): [mark] for gpu, mark in enumerate(marks)}
    devices = [{"name": name, "containerEdits": {"env": env}} for name, env in given.items()]
    edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    specification = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": edits,
    }
    return json.dumps(specification, indent=2) + "\n"


def write_known_hosts(lab: Lab) -> None:
    """known_hosts of the lab: every host's key under its address and under its name."""
    lines = []
    for seat in lab.seats:
        path = lab.host_directory(seat.name) / "upper/etc/ssh/ssh_host_ed25519_key.pub"
        kind, key = path.read_text().split()[:2]
        lines.append(f"{seat.address} {kind} {key}\n")
    lab.known_hosts.write_text("".join(lines))
