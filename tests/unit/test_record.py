"""release.json is what the next plan reads: written, observed and read again it says the same."""

from __future__ import annotations

import json

import pytest

from rollpin import record, releases
from rollpin.observe import Unknown
from rollpin.observe_parse import parse_host_state
from rollpin.plan import Target
from rollpin.scripts import Bound

from . import builders as a
from .cases import CASES, bound


@pytest.mark.parametrize("case", CASES)
def test_it_is_one_line_that_the_fact_can_carry(case: str) -> None:
    plan = CASES[case]()
    text = record.release_json(plan, bound(plan), a.AT, None)
    state = parse_host_state(
        [
            "@@rollpin begin clock",
            *("hostname=h", "now=1", "uptime=1", "boot_id=b", "systemd=yes", "uid=0", "missing="),
            "@@rollpin end clock 0",
            "@@rollpin begin releases",
            f"glm53 {plan.number} committed 5 {text}",
            "@@rollpin end releases 0",
            *("@@rollpin begin displaced", "@@rollpin end displaced 0"),
            *("@@rollpin begin numbers", "@@rollpin end numbers 0"),
        ]
    )
    assert not isinstance(state.releases, Unknown)
    (found,) = state.releases
    assert found.record == json.loads(text)
    assert (found.age, found.open) == (5, False)
    assert found.record["plan"] == plan.hash
    assert releases.replaced_by(found) == plan.replaces
    serves = None if plan.main.displaced else plan.main.id or bound(plan).container
    assert releases.serving_id(found) == (serves or "")
    if plan.target_health:
        assert Target.from_json(found.record["health"]) == plan.target_health


def test_the_whole_records_are_kept_apart() -> None:
    plan = a.plan(a.host(a.production(), a.scan()))
    kept = json.loads(record.records_json(plan))
    assert set(kept) == {a.PP4, a.SCAN}
    assert kept[a.SCAN]["Path"] == "python3"
    assert "very-secret" not in record.release_json(plan, Bound("tx", a.R1), a.AT, None)
