"""release.json: what a release was, for whoever asks the host later. Pure.

It is read by status, rollback and the next plan; it holds no secret. The whole records of the
displaced containers (their environments too) go to records.json, which only root reads.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from rollpin.plan import Plan
from rollpin.scripts import Bound

FORMAT = 1


def release_json(plan: Plan, bound: Bound, at: str, image: dict[str, Any] | None) -> str:
    """One line of JSON. `serves`: the container that bears the service once it is committed; with
    `made`, the name that this release's own script makes it again with.
    """
    main = plan.main
    foreign = main.displaced
    value = {
        "format": FORMAT,
        "service": plan.service,
        "number": plan.number,
        "kind": plan.kind,
        "target": plan.target,
        "replaces": plan.replaces,
        "guard": plan.guard,
        "transaction": bound.transaction,
        "by": plan.by,
        "at": at,
        "profile": plan.profile,
        "fingerprint": plan.fingerprint,
        "plan": plan.hash,
        "image": image,
        "engine": {"id": plan.engine.id, "root": plan.engine.root} if plan.engine else None,
        "serves": None
        if foreign
        else {
            "id": main.id or bound.container,
            "policy": main.policy,
            "name": main.live,
            "made": main.before if main.created else "",
        },
        "health": plan.target_health.to_json() if plan.target_health else None,
        "lease": plan.lease,
        "failed_grace": plan.failed_grace,
        "drain": plan.drain,
        "warnings": list(plan.warnings),
        "port": plan.port,
        "caches": [list(c) for c in plan.cache_dirs],
        "stops": [
            {
                "id": s.container.id,
                "name": s.container.name,
                "moved": s.moved,
                "policy": s.policy,
                "running": s.was_running,
                "ours": s.ours,
                "reasons": list(s.reasons),
                "image": s.container.image,
                "gpus": list(s.container.gpus),
                "ports": list(s.container.ports),
                "losses": list(s.again.losses),
                "auto_remove": s.container.auto_remove,
                "grace": s.grace,
                "permitted": s.permitted,
                "catches": [dataclasses.asdict(x) for x in s.catches],
            }
            for s in plan.stops
        ],
        "starts": [
            {
                "id": s.id or bound.container,
                "before": s.before,
                "live": s.live,
                "policy": s.policy,
                "created": s.created,
                "displaced": s.displaced,
                "main": s.main,
            }
            for s in plan.starts
        ],
    }
    return json.dumps(value, sort_keys=True)


def fault(value: object, service: str, number: int) -> str:
    """Why this is not the record of that release; "" when it is. A disk may have been full."""
    if not isinstance(value, dict):
        return "it is missing or empty" if value is None else "it is no JSON object"
    if value.get("format") != FORMAT:
        return f"its format is {value.get('format')!r}, not {FORMAT}"
    if (value.get("service"), value.get("number")) != (service, number):
        return f"it is the record of {value.get('service')} release {value.get('number')}"
    lists = {"stops": ("id", "name", "policy", "running", "ours"), "starts": ("id", "live")}
    for name, keys in lists.items():
        rows = value.get(name)
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and all(key in row for key in keys) for row in rows
        ):
            return f"its {name} are not complete"
    serves = value.get("serves", "absent")
    if serves is not None and not (isinstance(serves, dict) and serves.get("id")):
        return "it does not say what serves"
    return ""


def records_json(plan: Plan) -> str:
    """`docker inspect` of everything that the release stops, by id."""
    return json.dumps({s.container.id: s.container.record for s in plan.stops}, sort_keys=True)
