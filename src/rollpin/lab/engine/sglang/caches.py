"""The caches of a real engine: where they are, whether they match, what writing them leaves.

Since 0.5.18 every compiled kernel lives under SGLANG_CACHE_DIR; older versions use the homes of
FlashInfer, Triton and Inductor. Tactics of the FlashInfer autotune are drawn by chance, so a lost
cache changes what serves, not only how long it takes to start.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import pathlib
import random
from collections.abc import Mapping
from dataclasses import dataclass

from .args import ServerArgs, ranks

ARCH = "120f"
CAPABILITY = "sm120"
OPS = ("fused_moe_120", "fp4_gemm_cutlass_sm120", "batch_mla_attention_sm120", "sampling")
MOVED = (0, 5, 18)


@dataclass(frozen=True)
class Places:
    """Absolute paths. `ops` is FlashInfer's cached_ops, `tactics` this key's autotune folder."""

    ops: pathlib.Path
    tactics: pathlib.Path
    triton: pathlib.Path
    inductor: pathlib.Path
    stale: list[pathlib.Path]


def places(
    args: ServerArgs, version: tuple[int, ...], flashinfer: str, env: Mapping[str, str]
) -> Places:
    home = pathlib.Path(env.get("HOME") or "/root")
    root = pathlib.Path(env.get("SGLANG_CACHE_DIR") or home / ".cache" / "sglang")
    moved = version >= MOVED

    def place(variable: str, new: pathlib.Path, old: pathlib.Path) -> pathlib.Path:
        return pathlib.Path(env.get(variable) or (new if moved else old))

    workspace = place("FLASHINFER_WORKSPACE_BASE", root, home)
    old_homes = [home / ".cache" / "flashinfer", home / ".triton"]
    return Places(
        ops=workspace / ".cache" / "flashinfer" / flashinfer / ARCH / "cached_ops",
        tactics=root / "flashinfer" / "autotune" / flashinfer / CAPABILITY / autotune_key(args),
        triton=place("TRITON_CACHE_DIR", root / "triton", home / ".triton" / "cache"),
        inductor=place(
            "TORCHINDUCTOR_CACHE_DIR",
            root / "inductor",
            pathlib.Path("/tmp/torchinductor_root"),  # noqa: S108
        ),
        stale=[old for old in old_homes if moved and old.is_dir()],
    )


def autotune_key(args: ServerArgs) -> str:
    """16 hex digits over what decides the tactics: the model path's very characters among them."""
    names = ("model_path", "dtype", "quantization", "moe_runner_backend")
    sizes = ("tp_size", "pp_size", "dp_size", "ep_size")
    text = json.dumps([args[name] for name in names + sizes])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- compiled kernels ---------------------------------------------------------------------------


def kernels_present(where: Places) -> bool:
    return all(_kernel(where, op).is_file() for op in OPS)


def compile_kernels(where: Places) -> None:
    """Write what nvcc would. Raises OSError (EACCES, EROFS, ENOSPC)."""
    for op in OPS:
        _write(_kernel(where, op), b"\x7fELF" + op.encode().ljust(4092, b"\0"))
    for folder in (where.triton, where.inductor):
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:52]
        _write(folder / name / "kernel.json", b"{}")


def map_kernels(where: Places) -> None:
    """Map the kernels executable, as loading them does: a noexec mount fails here.

    Raises OSError with the loader's words.
    """
    for op in OPS:
        path = _kernel(where, op)
        try:
            with path.open("rb") as file:
                mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=_EXECUTABLE).close()
        except PermissionError as error:
            raise OSError(
                f"{path}: failed to map segment from shared object: {error.strerror}"
            ) from error


_EXECUTABLE = mmap.PROT_READ | mmap.PROT_EXEC


def _kernel(where: Places, op: str) -> pathlib.Path:
    return where.ops / op / f"{op}.so"


# --- tactics ------------------------------------------------------------------------------------


def tactics_present(where: Places, args: ServerArgs) -> bool | None:
    """True: every rank's file is there and they agree. None: they disagree and are of no use."""
    draws = []
    for path in tactic_files(where, args):
        try:
            draws.append(json.loads(path.read_text())["draw"])
        except (OSError, ValueError, KeyError):
            draws.append(None)
    if draws and None not in draws and len(set(draws)) == 1:
        return True
    return False if set(draws) <= {None} else None


def draw_tactics(where: Places, args: ServerArgs) -> None:
    """Write one file per rank. Raises OSError."""
    draw = f"{random.getrandbits(64):016x}"
    for path in tactic_files(where, args):
        tactics = {op: random.randrange(64) for op in OPS}  # noqa: S311
        _write(path, json.dumps({"draw": draw, "tactics": tactics}).encode())


def tactic_files(where: Places, args: ServerArgs) -> list[pathlib.Path]:
    return [where.tactics / f"rank_tp{tp}_pp{pp}_dp0.json" for pp, tp in ranks(args)]


def _write(path: pathlib.Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)
