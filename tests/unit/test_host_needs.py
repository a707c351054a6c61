"""What a release needs of its host: model, disks, GPUs, room for the image."""

from __future__ import annotations

import dataclasses

import pytest

from rollpin.host_needs import model_on_host
from rollpin.observe import (
    Disk,
    HostState,
    Unknown,
)
from rollpin.profile_values import Mount

from . import builders as a
from .builders import FREE, WHY, only

CONFIG = "/data/hf_models/GLM-5.3-NVFP4/config.json"
CACHE = "/data/glm53_exp/sglang_cache"


def disks(path: str, disk: Disk | Unknown) -> HostState:
    return dataclasses.replace(FREE, disks={**FREE.disks, path: disk})


def test_where_the_model_lies() -> None:
    assert model_on_host(a.profile()) == CONFIG
    other = dataclasses.replace(
        a.profile(),
        mounts=(
            Mount("A", "/x", "/data/hf_models"),
            Mount("B", "/y", "/data/hf_models/GLM-5.3-NVFP4"),
        ),
    )
    assert model_on_host(other) == "/y/config.json"
    assert model_on_host(dataclasses.replace(a.profile(), model_path="zai/GLM-5.3")) == ""


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (disks(CONFIG, Disk(CONFIG, 1, "rw", exists=False)), f"the host has no {CONFIG}"),
        (disks(CONFIG, WHY), f"{CONFIG} could not be looked at (the daemon is away)"),
        (
            disks(CACHE, Disk(CACHE, 1, "rw,noexec,relatime", exists=False)),
            f"the filesystem of {CACHE} is mounted noexec",
        ),
        (a.host(gpus=a.gpus(4)), "the profile wants 8 GPUs (all), the host offers 4"),
        (a.host(gpus=()), "the profile wants 8 GPUs (all), the host offers 0"),
        (
            disks("/var/lib/docker", Disk("/var/lib/docker", 100_000_000, "rw", exists=True)),
            "/var/lib/docker has 0.1 GiB free",
        ),
    ],
)
def test_facts_of_the_host(state: HostState, words: str) -> None:
    assert words in only(a.plan(state))


def test_a_full_disk_does_not_matter_when_the_image_is_there() -> None:
    full = disks("/var/lib/docker", Disk("/var/lib/docker", 1, "rw", exists=True))
    assert not a.plan(dataclasses.replace(full, image=a.IMAGE)).refused
    assert "GiB free" in only(a.plan(dataclasses.replace(full, image=WHY)))


@pytest.mark.parametrize("disk", [WHY, None])
def test_room_that_is_not_known_is_not_enough(disk: Unknown | None) -> None:
    rest = {p: d for p, d in FREE.disks.items() if p != "/var/lib/docker"}
    rest |= {"/var/lib/docker": disk} if disk else {}
    state = dataclasses.replace(FREE, disks=rest)
    assert "how much room /var/lib/docker has is not known" in only(a.plan(state))
    assert not a.plan(dataclasses.replace(state, image=a.IMAGE)).refused


def test_the_room_is_that_of_the_engines_own_root() -> None:
    engine = dataclasses.replace(a.ENGINE, root="/data/docker")
    full = dataclasses.replace(
        disks("/data/docker", Disk("/data/docker", 1, "rw", exists=True)), engine=engine
    )
    assert "/data/docker has 0.0 GiB free" in only(a.plan(full))


def test_with_the_containerd_store_it_is_that_of_containerd_too() -> None:
    engine = dataclasses.replace(a.ENGINE, storage="io.containerd.snapshotter.v1")
    root = "/var/lib/containerd"
    full = dataclasses.replace(disks(root, Disk(root, 1, "rw", exists=True)), engine=engine)
    assert f"{root} has 0.0 GiB free" in only(a.plan(full))
    unseen = dataclasses.replace(FREE, engine=engine)
    assert f"how much room {root} has is not known" in only(a.plan(unseen))


def test_gpus_that_the_host_lacks() -> None:
    argv = ("python3", "-m", "sglang.launch_server", "--tp-size", "2")
    wanted = dataclasses.replace(a.profile(), gpus="7,8", argv=argv)
    assert "the profile wants 2 GPUs (7,8), the host offers 1" in only(a.plan(FREE, wanted))
