"""Which GPUs the engine was given, and taking their memory.

Docker's `--gpus` puts NVIDIA_VISIBLE_DEVICES into the container; the lab's CDI file puts
ROLLPIN_LAB_GPU_<index>. The memory of a GPU is an abstract socket of the (host's) network
namespace: the kernel frees it with the process, and a second model on the GPU finds it taken.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

NONE = ("", "none", "void")
COUNT = 8
SHARED = 0.5  # a model that asks for no more leaves room for another


def visible(env: Mapping[str, str] = os.environ) -> str:
    """`all`, a comma list of indices or UUIDs, or "" when the container has none of its own."""
    devices = env.get("NVIDIA_VISIBLE_DEVICES", "")
    if devices not in NONE:
        return devices
    found = [re.fullmatch(r"ROLLPIN_LAB_GPU_(\d+)", name) for name in env]
    return ",".join(sorted((match[1] for match in found if match), key=int))


def take(devices: str, ranks: int, fraction: float) -> list[socket.socket]:
    """Hold the memory for as long as the sockets live.

    Raises RuntimeError with CUDA's words: no GPU, too few of them, or no memory left on one.
    """
    if not devices:
        if os.environ.get("ROLLPIN_LAB_NEEDS_GPUS", "0") == "1":
            raise RuntimeError("No CUDA GPUs are available")
        return []
    names = [str(n) for n in range(COUNT)] if devices == "all" else devices.split(",")
    if len(names) < ranks:
        raise RuntimeError("CUDA error: invalid device ordinal")
    held = []
    for name in names[:ranks] if fraction > SHARED else []:
        memory = socket.socket(socket.AF_UNIX)
        try:
            memory.bind(f"\0rollpin-lab-gpu-{name}")
        except OSError as error:
            raise RuntimeError(
                f"CUDA out of memory. GPU {name} has a total capacity of 83.64 GiB of which "
                "12.31 GiB is free."
            ) from error
        held.append(memory)
    return held
