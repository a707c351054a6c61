"""The fingerprint of a profile: what runs in the container, and nothing else.

Two profiles with the same fingerprint start the same container. Comments, the order of keys, notes,
timeouts, health, the guard and what may be displaced do not count, nor does where the file lies.
"""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

from rollpin import profile_values as values
from rollpin.profile import Profile

SHORT = 12

Canonical: TypeAlias = dict[str, object]


def fingerprint(profile: Profile) -> str:
    """64 hex digits: SHA-256 over the canonical JSON."""
    text = json.dumps(canonical(profile), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def short(digest: str) -> str:
    """The form for people and names: the first 12 hex digits."""
    return digest[:SHORT]


def canonical(profile: Profile) -> Canonical:
    """Everything that decides what runs, in plain JSON values. The names of mounts do not count."""
    return {
        "format": 1,
        "repository": profile.image_repository,
        "pin": profile.pin,
        "tag": None if profile.pin else profile.image_tag,  # with a pin the tag decides nothing
        "argv": list(profile.argv),
        "port": profile.port,
        "gpus": profile.gpus,
        "network": profile.network,
        "ipc": profile.ipc,
        "shm_bytes": values.size_bytes(profile.shm_size),
        "init": profile.init,
        "restart_policy": profile.restart_policy,
        "ulimits": {name: _both(limit) for name, limit in profile.ulimits.items()},
        "mounts": sorted([m.host, m.container, m.mode] for m in profile.mounts),
        "caches": sorted([m.host, m.container] for m in profile.caches),
        "env": dict(profile.env),
        "secrets": sorted(profile.secrets),
        "log_max_bytes": values.size_bytes(profile.log_max_size),
        "log_max_file": profile.log_max_file,
    }


def _both(limit: str) -> str:
    """Docker reads a single limit as soft and hard."""
    return limit if ":" in limit else f"{limit}:{limit}"
