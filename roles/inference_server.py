"""A host that serves one profile: staged everywhere, then live host by host."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api import deploy

from rollpin.operations import release


@deploy("Inference server")
def inference_server(profile: str, overlays: Sequence[str] = ()) -> None:
    """The host serves `profile` with `overlays`, or what it served before."""
    release.staged(name=f"Stage {profile}", profile=profile, overlays=overlays)
    release.live(name=f"Serve {profile}", profile=profile, overlays=overlays)
