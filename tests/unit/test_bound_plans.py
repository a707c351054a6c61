"""`--data plan=`: what binds an unattended run to the plans that a person saw."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rollpin.errors import UsageError
from rollpin.planning import bound_plan, check_bound_plans

ONE, TWO = "p0123456789ab", "pba9876543210"


def host(given: object, name: str = "gpu1") -> Any:
    hosts = [SimpleNamespace(name=n) for n in ("gpu1", "gpu2")]
    return SimpleNamespace(name=name, data={"plan": given}, state=SimpleNamespace(inventory=hosts))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "'' is no plan's hash"),
        ("gpu1:", "'' is no plan's hash"),
        ("0123456789ab", "'0123456789ab' is no plan's hash"),
        (f"gpu1:{ONE},", "'' is no plan's hash"),
        (f"gpu9:{ONE}", "the inventory has no host gpu9"),
        (f"gpu1:{ONE},gpu1:{TWO}", "gpu1 is there twice"),
        (f"{ONE},{TWO}", "one for all hosts is there twice"),
    ],
)
def test_what_binds_nothing_is_an_error_everywhere(given: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_bound_plans(host(given))


def test_a_plan_for_the_host_for_all_and_for_another() -> None:
    assert bound_plan(host(None)) is None
    assert bound_plan(host(ONE)) == ONE
    assert bound_plan(host(f"gpu1:{ONE}, gpu2:{TWO}", "gpu2")) == TWO
    check_bound_plans(host(f"gpu2:{TWO}"))
    with pytest.raises(UsageError, match="names no plan for gpu1"):
        bound_plan(host(f"gpu2:{TWO}"))
