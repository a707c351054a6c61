"""The fault sweep's own arithmetic: its sample, its names of commands, what its table counts."""

from __future__ import annotations

from collections import Counter

from tests.faults import sweep, table
from tests.faults.cases import FAULTS, Boundary
from tests.faults.gate import plain
from tests.faults.judge import Standing, restored_faults
from tests.faults.sweep import Result

OLD, NEW = "ab" * 32, "cd" * 32
BOUNDARIES = [
    Boundary("first", 1, "docker stop glm53-pp4"),
    Boundary("first", 2, "docker start the-new-one"),
    Boundary("first", 3, "mv -T armed committed"),
    Boundary("first", 0, "ready"),
    Boundary("failed", 4, "docker start glm53-pp4"),
]


def test_a_sample_is_the_seeds_own_and_takes_every_fault_as_often() -> None:
    everything = sweep.cells(BOUNDARIES)
    one = sweep.sample(everything, 32, "a")
    assert one == sweep.sample(everything, 32, "a")
    assert one != sweep.sample(everything, 32, "b")
    assert set(Counter(c.fault for c in one).values()) == {2}
    assert len(set(one)) == 32


def test_every_fault_meets_every_boundary_where_it_has_a_meaning() -> None:
    met = {(c.fault, c.boundary.name) for c in sweep.cells(BOUNDARIES)}
    ready = {b for f, b in met if f == "engine crashes right after ready"}
    # not before the engine was ready, nor while a failed release is taken back
    assert ready == {"first/03 mv -T armed committed", "first/00 ready"}
    assert "failed/04 docker start glm53-pp4" not in {
        b for f, b in met if f == "second controller, same deploy"
    }
    assert len(met) == 5 * (len(FAULTS) - 2) + 2 + 4


def test_a_command_has_one_name_in_every_run() -> None:
    names = {OLD: "glm53"}
    assert plain(f"docker stop -t 9 {OLD}", names) == "docker stop -t 9 glm53"
    assert plain(f"docker rename {NEW} glm53.r12", names) == "docker rename the-new-one glm53.rN"
    run = "systemd-run --quiet --unit=rollpin-swap-glm53-3-ab12cd34 -p X=1 /bin/sh swap.sh"
    assert plain(run, names) == "systemd-run rollpin-swap"
    decide = "mv -T /var/lib/rollpin/glm53/releases/7/armed /var/lib/rollpin/glm53/releases/7/x"
    assert plain(decide, names) == "mv -T armed x"


def test_a_planned_command_names_the_container_that_has_no_id_yet() -> None:
    assert sweep.by_id("docker rename glm53.rN glm53") == "docker rename the-new-one glm53"
    assert sweep.by_id("docker start glm53") == "docker start the-new-one"
    last = "docker update --restart unless-stopped the-new-one"
    assert sweep.by_id("docker update --restart unless-stopped glm53") == last


def _result(fault: str, boundary: str, outcome: str, seconds: float | None) -> Result:
    return Result(f"{fault} @ {boundary}", fault, boundary, outcome, seconds, "lab1", 1.0)


def test_the_table_counts_what_was_not_reached_as_wrong_and_shows_the_exception_apart() -> None:
    rows = table.rows(
        [
            _result("reboot", "first/01 a", "live", 0.5),
            _result("reboot", "first/02 b", "restored", 2.25),
            _result("reboot", "first/03 c", "not reached", None),
            _result("reboot", "next/01 a", "wrong", 9.0),
            _result("dockerd SIGKILL", "first/01 a", "exception", 60.0),
        ],
        by_boundary=False,
    )
    assert rows == [
        ("dockerd SIGKILL outside a transaction (`unless-stopped`, no live-restore)", "first",
         "1", "0", "0", "1 down (known)", "–"),
        ("reboot", "first", "3", "1", "1", "1", "2.2"),
        ("reboot", "next", "1", "0", "0", "1", "9.0"),
    ]  # fmt: skip


def _standing(containers: dict[str, tuple[str, str, str]], *rest: str) -> Standing:
    return Standing(containers, frozenset(rest), {})


def test_restored_is_the_same_ids_names_states_policies_and_nothing_more() -> None:
    before = _standing({"glm53": (OLD, "running", "always:0")}, "tag x")
    none: frozenset[str] = frozenset()
    assert restored_faults(before, before, none, none, True) == []
    for now in (
        _standing({"glm53": (NEW, "running", "always:0")}, "tag x"),
        _standing({"glm53": (OLD, "exited", "always:0")}, "tag x"),
        _standing({"glm53": (OLD, "running", "no:0")}, "tag x"),
        _standing({"glm53.r1": (OLD, "running", "always:0")}, "tag x"),
        _standing({}, "tag x"),
        _standing({"glm53": (OLD, "running", "always:0")}),
        _standing({"glm53": (OLD, "running", "always:0")}, "tag x", "unit rollpin-guard"),
    ):
        assert restored_faults(now, before, none, none, True)


def test_one_that_a_person_removed_must_be_there_again_under_another_id() -> None:
    before = _standing({"glm53": (OLD, "running", "always:0")})
    gone, none = frozenset({OLD}), frozenset[str]()
    again = _standing({"glm53": (NEW, "running", "always:0")})
    assert restored_faults(again, before, gone, none, True) == []
    assert restored_faults(_standing({}), before, gone, none, True)
    stopped = _standing({"glm53": (NEW, "created", "always:0")})
    assert restored_faults(stopped, before, gone, none, True)
    # outside a transaction it is that person's business
    assert restored_faults(_standing({}), before, gone, none, False) == []
