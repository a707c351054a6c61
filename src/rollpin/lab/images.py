"""The lab's images, written straight into its registry: no builder, no hub, no engine needed.

    base layer    python3 on Debian, made once and cached        the same in every tag
    engine layer  src/rollpin/lab/engine                         the same in every tag
    config        ENV of the tag: version, and for variants the fault

`nightly-dev-20260828` is a plain manifest. `v0.5.19` is an index over one manifest per platform,
as the public image is; `latest` is the moving tag, at first the same index.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path

from rollpin.errors import UsageError
from rollpin.lab import base, registry
from rollpin.lab.state import CACHE, Lab, locked

NIGHTLY = "nightly-dev-20260828"
STABLE = "v0.5.19"
MOVING = "latest"
VERSIONS = {NIGHTLY: "0.5.18", STABLE: "0.5.19"}
# production stands in seconds between tests; nobody judges its cold start
QUICK = {"ROLLPIN_LAB_COLD_SECONDS": "0.2"}

ENGINE = Path(__file__).parent / "engine"
PACKAGES = "usr/local/lib/python3.11/dist-packages"  # where Debian 12's python3 looks
ENTRYPOINT = "opt/nvidia/nvidia_entrypoint.sh"
# CUDA's images print a banner and run the command; ours has no banner
ENTRYPOINT_SCRIPT = b'#!/bin/sh\nexec "$@"\n'
# without the NVIDIA_VISIBLE_DEVICES of CUDA's images: the engine takes it for what --gpus gave
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "CUDA_VERSION": "12.9.1",
    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    "NVIDIA_REQUIRE_CUDA": "cuda>=12.9",
}
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


def base_layer() -> tuple[bytes, str]:
    """The cached base layer, gzipped, and the digest of what is inside (its diff id)."""
    path = CACHE / f"{base.IMAGE.tree.name}.tar.gz"
    note = path.with_suffix(".diff-id")
    with locked(CACHE / "builds" / "layer"):
        if not note.exists():
            plain = io.BytesIO()
            with tarfile.open(fileobj=plain, mode="w") as archive:
                archive.add(base.IMAGE.tree, arcname=".", filter=_plain)
            path.write_bytes(gzip.compress(plain.getvalue(), 5, mtime=0))
            # written last: it says that the layer is whole
            note.write_text(f"sha256:{hashlib.sha256(plain.getvalue()).hexdigest()}")
    return path.read_bytes(), note.read_text()


def engine_layer() -> tuple[bytes, str]:
    """The engine's files and the entrypoint, gzipped, and the diff id."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path in sorted(ENGINE.rglob("*")):
            inside = path.relative_to(ENGINE)
            if path.is_file() and len(inside.parts) > 1 and "__pycache__" not in inside.parts:
                archive.add(path, arcname=f"{PACKAGES}/{inside}", filter=_plain)
        entry = tarfile.TarInfo(ENTRYPOINT)
        entry.size, entry.mode = len(ENTRYPOINT_SCRIPT), 0o755
        archive.addfile(entry, io.BytesIO(ENTRYPOINT_SCRIPT))
    content = plain.getvalue()
    return gzip.compress(content, 5, mtime=0), f"sha256:{hashlib.sha256(content).hexdigest()}"


def image_config(version: str, env: Mapping[str, str], diff_ids: list[str]) -> bytes:
    """The image's config: what runs, with which environment, over which layers."""
    environment = {**ENVIRONMENT, "ROLLPIN_LAB_SGLANG_VERSION": version, **env}
    return json.dumps(
        {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "created": "2026-08-28T00:00:00Z",
            "config": {
                "Env": [f"{name}={value}" for name, value in environment.items()],
                "Entrypoint": [f"/{ENTRYPOINT}"],
                "Cmd": ["/bin/sh"],
                "WorkingDir": "/sgl-workspace/sglang",
                "Labels": {"org.opencontainers.image.version": version},
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [{"created_by": "rollpin lab"} for _ in diff_ids],
        }
    ).encode()


def push_manifest(lab: Lab, reference: str | None, version: str, env: Mapping[str, str]) -> str:
    """Push one platform's image under a tag, or with None by digest only; returns the digest."""
    layers = [base_layer(), engine_layer()]
    config = image_config(version, env, [diff_id for _, diff_id in layers])
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": registry.MANIFEST,
            "config": {
                "mediaType": registry.CONFIG,
                "size": len(config),
                "digest": registry.push_blob(lab, config),
            },
            "layers": [
                {
                    "mediaType": registry.LAYER,
                    "size": len(content),
                    "digest": registry.push_blob(lab, content),
                }
                for content, _ in layers
            ],
        }
    ).encode()
    reference = reference or f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    return registry.push_manifest(lab, reference, registry.MANIFEST, manifest)


def push_index(lab: Lab, tag: str, version: str, env: Mapping[str, str]) -> str:
    """Push an index over this machine's platform under a tag; returns the index's digest."""
    digest = push_manifest(lab, None, version, env)
    _, headers, _ = registry.ask(lab, "HEAD", f"manifests/{digest}")
    entry = {
        "mediaType": registry.MANIFEST,
        "digest": digest,
        "size": int(headers["content-length"]),
        "platform": {"architecture": ARCHITECTURE, "os": "linux"},
    }
    index = {"schemaVersion": 2, "mediaType": registry.INDEX, "manifests": [entry]}
    return registry.push_manifest(lab, tag, registry.INDEX, json.dumps(index).encode())


def publish(lab: Lab) -> dict[str, str]:
    """Bring the lab's tags to what the source says; returns tag -> digest.

    The moving tag is set only when it is missing or when the image behind it was made anew.
    """
    before = lab.images
    digests = {
        NIGHTLY: push_manifest(lab, NIGHTLY, VERSIONS[NIGHTLY], QUICK),
        STABLE: push_index(lab, STABLE, VERSIONS[STABLE], {}),
    }
    if before.get(STABLE) != digests[STABLE] or registry.digest_of(lab, MOVING) is None:
        move_tag(lab, MOVING, STABLE)
    return {**digests, MOVING: digests[STABLE]}


def push_variant(lab: Lab, tag: str, env: Mapping[str, str], version: str = "0.5.19") -> str:
    """Push an image with more ENV baked in (a fault, say) under `tag`; returns its digest."""
    if tag in (NIGHTLY, STABLE, MOVING):
        raise UsageError(f"{tag} is one of the lab's own tags; give the variant another.")
    return push_index(lab, tag, version, env)


def move_tag(lab: Lab, tag: str, to: str) -> str:
    """Let `tag` name what `to` (a tag or digest) names; returns the digest.

    Raises UsageError when the registry has no such image.
    """
    status, headers, content = registry.ask(lab, "GET", f"manifests/{to}", expected=(200, 404))
    if status == 404:
        raise UsageError(f"The registry has no {registry.REPOSITORY}:{to}.")
    return registry.push_manifest(lab, tag, headers["content-type"], content)
