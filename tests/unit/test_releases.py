"""What the releases on a host say."""

from __future__ import annotations

import dataclasses

from rollpin import releases
from rollpin.observe import Unknown
from rollpin.plan import Plan

from . import builders as a

ONE, TWO = a.with_release_1(), a.with_release_2()


def test_the_newest_committed_release_is_current() -> None:
    found = releases.current(TWO.state, "glm53")
    assert found is not None
    assert found.number == 2
    assert releases.serving_id(found) == a.R2
    assert releases.replaced_by(found) == 1
    assert releases.current(TWO.state, "other") is None
    assert releases.serving_id(None) == ""


def test_a_release_that_was_taken_back_is_not_current() -> None:
    for state in ("restored", "rolled-back", "armed", "staged"):
        records = (a.release(ONE.r1, a.R1), a.release(_two(), a.R2, state))
        found = releases.current(a.host(releases=records), "glm53")
        assert found is not None
        assert found.number == 1


def _two() -> Plan:
    assert TWO.r2 is not None
    return TWO.r2


def test_numbers() -> None:
    assert releases.next_number(a.host(), "glm53") == 1
    assert releases.next_number(TWO.state, "glm53") == 3
    assert releases.next_number(TWO.state, "other") == 3  # the journal that was read is one's own
    restored = a.release(dataclasses.replace(_two(), number=5), state="restored")
    assert releases.next_number(a.host(releases=(restored,)), "glm53") == 6


def test_displaced_now_needs_a_note() -> None:
    displaced = releases.displaced_now(ONE.state)
    assert list(displaced) == [a.PP4]
    assert (displaced[a.PP4].name, displaced[a.PP4].policy, displaced[a.PP4].running) == (
        "glm53-pp4",
        "unless-stopped",
        True,
    )
    gone = dataclasses.replace(ONE.state, displaced_notes=frozenset())
    assert releases.displaced_now(gone) == {}


def test_displaced_by_a_release_that_was_taken_back_is_not_displaced() -> None:
    record = a.release(ONE.r1, a.R1, "restored")
    state = a.host(releases=(record,), displaced_notes=frozenset((a.PP4,)))
    assert releases.displaced_now(state) == {}


def test_our_own_predecessor_is_not_displaced() -> None:
    assert a.R1 not in releases.displaced_now(
        dataclasses.replace(TWO.state, displaced_notes=frozenset((a.PP4, a.R1)))
    )


def test_displaced_twice_and_down_the_second_time_was_running_the_first() -> None:
    twice = dataclasses.replace(ONE.r1, number=2)
    down = dataclasses.replace(twice.stops[0], container=a.down(a.production()))
    records = (
        a.release(ONE.r1, a.R1),
        a.release(dataclasses.replace(twice, stops=(down,)), a.R2, at="2026-12-01T00:00:00Z"),
    )
    state = a.host(releases=records, displaced_notes=frozenset((a.PP4,)))
    found = releases.displaced_now(state)[a.PP4]
    assert (found.running, found.release, found.policy) == (True, 2, "unless-stopped")


def test_unknown_releases_say_nothing() -> None:
    state = a.host(releases=Unknown("x"))
    assert releases.of(state, "glm53") == ()
    assert releases.current(state, "glm53") is None
    assert releases.displaced_now(state) == {}
