"""The environment, read once: how fast, which version, which faults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

FAULTS = {
    "crash-load": False,
    "crash-after": True,
    "hang": False,
    "hang-after": True,
    "freeze": False,
    "freeze-after": True,
    "lie": None,  # the argument may be left out
    "never-ready": False,
    "slow": True,
    "ignore-sigterm": False,
    "no-cache": False,
    "wrong-model": False,
}


class Faults:
    """The faults chosen: `"hang" in faults`, `faults.seconds("slow")`.

    Raises ValueError for a fault nobody knows: a lab test must not pass on a typing error.
    """

    def __init__(self, text: str) -> None:
        self.chosen: dict[str, str] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, colon, argument = item.partition(":")
            if name not in FAULTS:
                raise ValueError(f"ROLLPIN_LAB_FAULT: no fault {name!r}; known: {sorted(FAULTS)}")
            wanted = FAULTS[name]
            if wanted is not None and wanted != bool(colon):
                shape = f"{name}:N" if wanted else name
                raise ValueError(f"ROLLPIN_LAB_FAULT: {item!r} must be written {shape}")
            if wanted:
                float(argument)
            self.chosen[name] = argument
        if self.chosen.get("lie", "") not in ("", "garbage", "500"):
            raise ValueError(f"ROLLPIN_LAB_FAULT: no lie {self.chosen['lie']!r}: garbage or 500")

    def __contains__(self, name: str) -> bool:
        return name in self.chosen

    def seconds(self, name: str) -> float | None:
        """The argument of a fault with one, or None when it was not chosen."""
        return float(self.chosen[name]) if name in self.chosen else None

    def after(self, name: str) -> float | None:
        """When a fault strikes, in seconds after ready: `hang` is `hang-after:0`."""
        return 0.0 if name in self.chosen else self.seconds(f"{name}-after")

    @property
    def lie(self) -> str | None:
        return (self.chosen["lie"] or "garbage") if "lie" in self.chosen else None


@dataclass(frozen=True)
class Knobs:
    version: tuple[int, ...]
    flashinfer: str
    load: float
    cold: float
    warmup: float
    health: float
    health_timeout: float
    health_generates: bool
    drain: float
    crash: float
    coredump: float
    hung_stop: float
    token: float
    force_shutdown: bool
    faults: Faults

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


def read(env: Mapping[str, str] = os.environ) -> Knobs:
    def seconds(name: str, default: float) -> float:
        return float(env.get(f"ROLLPIN_LAB_{name}_SECONDS", default))

    version = tuple(int(n) for n in env.get("ROLLPIN_LAB_SGLANG_VERSION", "0.5.19").split("."))
    flashinfer = "0.7.4" if version >= (0, 5, 23) else "0.6.18"
    faults = Faults(env.get("ROLLPIN_LAB_FAULT", ""))
    coredump = float(env.get("SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS", 60))
    generates = env.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "1").lower()
    return Knobs(
        version=version,
        flashinfer=env.get("ROLLPIN_LAB_FLASHINFER_VERSION", flashinfer),
        load=seconds("LOAD", 0.8),
        cold=seconds("COLD", 2.0),
        warmup=seconds("WARMUP", 0.2),
        health=seconds("HEALTH", 1.0),
        health_timeout=float(env.get("SGLANG_HEALTH_CHECK_TIMEOUT", 20)),
        health_generates=generates not in ("0", "false"),
        drain=seconds("DRAIN", 0.3),
        crash=seconds("CRASH", 1.0),
        coredump=coredump,
        hung_stop=seconds("HUNG_STOP", 4.0),
        token=seconds("TOKEN", 0.002),
        force_shutdown=env.get("SGL_FORCE_SHUTDOWN", "0").lower() in ("1", "true"),
        faults=faults,
    )
