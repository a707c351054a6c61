"""`--data plan=`: what binds an unattended run to the plans that a person saw."""

from __future__ import annotations

import pytest

from rollpin import bound_plans
from rollpin.errors import UsageError

ONE, TWO = "p0123456789ab", "pba9876543210"
HOSTS = ["gpu1", "gpu2"]


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
        bound_plans.read(given, HOSTS)


def test_a_plan_for_the_host_for_all_and_for_another() -> None:
    assert bound_plans.of("gpu1", ONE, HOSTS) == ONE
    assert bound_plans.of("gpu2", f"gpu1:{ONE}, gpu2:{TWO}", HOSTS) == TWO
    assert bound_plans.of("gpu2", f"gpu1:{ONE},{TWO}", HOSTS) == TWO
    bound_plans.read(f"gpu2:{TWO}", HOSTS)  # says nothing of gpu1, which may be unchanged
    with pytest.raises(UsageError, match="names no plan for gpu1"):
        bound_plans.of("gpu1", f"gpu2:{TWO}", HOSTS)
