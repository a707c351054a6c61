"""Where things are on a host."""

from __future__ import annotations

STATE_DIR = "/var/lib/rollpin"
RUN_DIR = "/run/rollpin"


def release_dir(service: str, number: int) -> str:
    return f"{STATE_DIR}/{service}/releases/{number}"


def giveback_name(container: str) -> str:
    """Script of a release that gives a displaced container back."""
    return f"giveback-{container[:12]}.sh"


def recreate_name(container: str) -> str:
    """Script of a release that makes a container again which it stopped and somebody removed."""
    return f"recreate-{container[:12]}.sh"


def private(name: str) -> bool:
    """Is this file of a release for root alone? Environments and command lines hold keys."""
    whole = ("release.json", "records.json", "baseline.json", "env")
    return name in whole or name.startswith("recreate-")
