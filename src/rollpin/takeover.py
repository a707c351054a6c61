"""A release as its host recorded it, as a plan that another controller carries through. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollpin.observe_parse import container
from rollpin.owners import Catch
from rollpin.plan import Plan, Start, Stop, Target
from rollpin.recreate import Recreation
from rollpin.scripts import Bound


def carried_on(
    record: Mapping[str, Any],
    records: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
    host: str,
    by: str,
) -> tuple[Plan, Bound]:
    """What a controller must know to carry a recorded release through; `by` owns it from now on.

    records: records.json; baseline: the target of baseline.json, None when nobody served before.
    What only the way to the armed release needs (the pin, `docker create`, secrets) is not in it:
    the scripts are written. Raises KeyError, TypeError or ValueError for a record that lacks
    something.
    """
    stops = tuple(
        Stop(
            container=container(records[s["id"]]),
            moved=s["moved"],
            policy=s["policy"],
            ours=s["ours"],
            reasons=tuple(s["reasons"]),
            grace=float(s["grace"]),
            again=_unmakable(s),
            permitted=s["permitted"],
            catches=tuple(Catch(**x) for x in s["catches"]),
        )
        for s in record["stops"]
    )
    starts = tuple(
        Start(
            id=s["id"],
            before=s["before"],
            live=s["live"],
            policy=s["policy"],
            created=s["created"],
            main=s["main"],
            displaced=s["displaced"],
        )
        for s in record["starts"]
    )
    plan = Plan(
        host=host,
        service=record["service"],
        number=record["number"],
        kind=record["kind"],
        by=by,
        current=record["replaces"],
        target=record["target"],
        replaces=record["replaces"],
        profile=record["profile"],
        fingerprint=record["fingerprint"],
        image=record["image"],
        stops=stops,
        starts=starts,
        cache_dirs=tuple((outside, inside) for outside, inside in record["caches"]),
        target_health=_target(record["health"]),
        baseline=_target(baseline),
        guard=record["guard"],
        lease=float(record["lease"]),
        failed_grace=float(record["failed_grace"]),
        drain=float(record["drain"]),
        port=record["port"],
        warnings=tuple(record["warnings"]),
    )
    return plan, Bound(record["transaction"], plan.main.id)


def _target(value: Mapping[str, Any] | None) -> Target | None:
    return Target.from_json(value) if value else None


def _unmakable(s: Mapping[str, Any]) -> Recreation:
    """Its script is on the host: here only what is told of it."""
    return Recreation(
        name=s["name"],
        image=s["image"],
        image_id="",
        pull="",
        options=(),
        words=(),
        env=(),
        exported={},
        networks=(),
        volumes=(),
        losses=tuple(s["losses"]),
    )
