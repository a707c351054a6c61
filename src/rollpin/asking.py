"""What `rollpin status` asks beside the one fact: is a service good now, and where does its tag
point. Bounded; whatever goes wrong is a reason, never an exception.
"""

from __future__ import annotations

import dataclasses

from rollpin import releases
from rollpin.docker_api import DockerApi
from rollpin.errors import HostError, Lost
from rollpin.health import Examiner
from rollpin.observe import HostState, Release, Unknown
from rollpin.plan import Target
from rollpin.probe import Probe
from rollpin.remote import Remote, deadline
from rollpin.status import Answers

HEALTH_DEADLINE = 45.0  # seconds for one service: readiness, identity and a generation
TAG_DEADLINE = 15.0


def answers(remote: Remote, state: HostState) -> dict[str, Answers]:
    """By service, for each that a release serves. Not of one whose transaction is open: what it
    is judged on, its controller knows.
    """
    if isinstance(state.releases, Unknown):
        return {}
    api, probe = DockerApi(remote), Probe(remote)
    out = {}
    try:
        for name in sorted({r.service for r in state.releases}):
            release = releases.current(state, name)
            if release is None or release.fault or any(r.open for r in releases.of(state, name)):
                continue
            health = _health(Examiner(remote, api, probe, 1.0), state, release)
            out[name] = Answers(health, _tag(api, release))
    finally:
        api.close()
    return out


def _health(
    examiner: Examiner, state: HostState, release: Release
) -> tuple[str, ...] | Unknown | None:
    """What is not good, empty when all is; None for what cannot be asked."""
    recorded = release.record.get("health")
    main = next((s for s in release.record.get("starts") or () if s.get("main")), None)
    found = state.container(str(main["id"])) if main else None
    if not recorded or found is None or found.status != "running":
        return None
    try:
        target = dataclasses.replace(Target.from_json(recorded), container=found.id)
        with deadline(HEALTH_DEADLINE, f"asking {target.name}"):
            examiner.probe.prove(target.port)
            return tuple(examiner.examine(target).failures())
    except (HostError, Lost, KeyError, TypeError) as e:
        return Unknown(str(e))


def _tag(api: DockerApi, release: Release) -> str | Unknown | None:
    """The digest that the release's tag points to, as the host's engine sees the registry."""
    image = release.record.get("image") or {}
    if not image.get("tag"):
        return None
    try:
        with deadline(TAG_DEADLINE, "asking the registry"):
            return api.tag_digest(str(image["repository"]), str(image["tag"]))[0]
    except (HostError, Lost, KeyError) as e:
        return Unknown(str(e))
