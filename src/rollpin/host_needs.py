"""What a release needs of its host: model, cache disks, GPUs, room for the image. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rollpin.collisions import Refusal
from rollpin.observe import Disk, HostState, Image, Unknown
from rollpin.plan import Pin
from rollpin.profile import Profile

GIB = 1024**3
FREE_NEEDED = GIB  # bytes before a pull starts; the pull itself measures what it brings


def refusals(
    profile: Profile, gpus: Sequence[str], state: HostState, present: bool
) -> list[Refusal]:
    out = []
    config = model_on_host(profile)
    if config:
        disk = state.disks.get(config, Unknown("not looked at"))
        if isinstance(disk, Unknown):
            out.append(
                Refusal(
                    f"{config} could not be looked at ({disk.reason})",
                    "an engine without its model loads nothing",
                    "Put that right on the host.",
                )
            )
        elif not disk.exists:
            out.append(
                Refusal(
                    f"the host has no {config}",
                    "the engine would take the model path for a Hugging Face id",
                    "Copy the model there, or set the mount right.",
                )
            )
    for cache in profile.caches:
        disk = state.disks.get(cache.host, Unknown("not looked at"))
        if isinstance(disk, Disk) and "noexec" in disk.options.split(","):
            out.append(
                Refusal(
                    f"the filesystem of {cache.host} is mounted noexec",
                    "compiled kernels kept there could not be loaded",
                    f"Move CACHE_{cache.name} to a disk without noexec.",
                )
            )
        if isinstance(disk, Disk) and disk.fstype in ("tmpfs", "ramfs", "overlay"):
            out.append(
                Refusal(
                    f"{cache.host} lies on {disk.fstype}",
                    "a cache there does not outlive a reboot, and its tactics are drawn again",
                    f"Move CACHE_{cache.name} to a persistent disk of the host.",
                )
            )
    if gpus and not isinstance(state.gpus, Unknown):
        known = {g.index for g in state.gpus} | {g.uuid for g in state.gpus}
        absent = [g for g in gpus if g != "all" and g not in known]
        ranks = round(
            (profile.flag_number("--tp-size") or 1) * (profile.flag_number("--pp-size") or 1)
        )
        have = len(state.gpus) if "all" in gpus else len(gpus) - len(absent)
        if absent or ranks > have:
            out.append(
                Refusal(
                    f"the profile wants {ranks} GPUs ({profile.gpus}), the host offers {have}",
                    "the engine would fail while loading",
                    "Deploy to a host of the profile's hardware, or change GPUS.",
                )
            )
    if present or isinstance(state.engine, Unknown):
        return out
    for path in state.engine.image_roots:
        root = state.disks.get(path)
        if not isinstance(root, Disk):
            out.append(
                Refusal(
                    f"how much room {path} has is not known",
                    "a pull that fills the disk hurts what runs there",
                    f"See on the host: df {path}",
                )
            )
        elif root.free < FREE_NEEDED:
            out.append(
                Refusal(
                    f"{root.path} has {root.free / GIB:.1f} GiB free, the image may need"
                    f" {FREE_NEEDED / GIB:.1f} GiB",
                    "a pull that fills the disk hurts what runs there",
                    "Free some space (docker image prune), then run again.",
                )
            )
    return out


def image_present(pin: Pin, state: HostState) -> bool:
    """Is the image on the host? One that a release recorded is seen by its container."""
    if isinstance(state.image, Image):
        return True
    containers = () if isinstance(state.containers, Unknown) else state.containers
    return any(c.image == pin.reference for c in containers)


def model_on_host(profile: Profile) -> str:
    """Where the model's config.json lies on the host, or "" for a model that is no local path."""
    path = profile.model_path.rstrip("/")
    for mount in sorted((*profile.mounts, *profile.caches), key=lambda m: -len(m.container)):
        if path == mount.container or path.startswith(mount.container.rstrip("/") + "/"):
            return (
                mount.host.rstrip("/") + path[len(mount.container.rstrip("/")) :] + "/config.json"
            )
    return ""
