"""A transaction that another controller goes on with: what it knows, and who may take it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from rollpin import record
from rollpin.health import Check, Health
from rollpin.plan import Plan
from rollpin.takeover import carried_on

from . import builders as a
from .cases import CASES, bound
from .stub_host import StubHost

LEASE = 40  # seconds; a fifth is the renewal's pause
# What only the way to the armed release needs: the scripts are written by then.
BEFORE_ARMING = (
    "current", "pin", "engine", "create", "secrets", "stale", "gpu_holders", "image_present",
    "gpus", "remake", "prune", "notes",
)  # fmt: skip


def read_back(plan: Plan, by: str = a.BY) -> Plan:
    b = bound(plan)
    image = {"digest": plan.pin.digest} if plan.pin else dict(plan.image or {}) or None
    released = json.loads(record.release_json(plan, b, a.AT, image))
    records = json.loads(record.records_json(plan))
    target = json.loads(json.dumps(plan.baseline.to_json())) if plan.baseline else None
    again, same = carried_on(released, records, target, plan.host, by)
    assert same.transaction == b.transaction
    assert same.container == (plan.main.id or b.container)
    return again


@pytest.mark.parametrize("case", CASES)
def test_all_that_goes_on_is_in_the_record(case: str) -> None:
    """Whatever a plan is given in future is either recorded or named above."""
    plan = CASES[case]()
    again = read_back(plan)
    ident = bound(plan).container
    starts = tuple(dataclasses.replace(s, id=s.id or ident, was="") for s in plan.starts)
    for field in dataclasses.fields(Plan):
        if field.name in (*BEFORE_ARMING, "stops", "starts", "image"):
            continue
        assert getattr(again, field.name) == getattr(plan, field.name), field.name
    assert again.starts == starts
    for then, now in zip(plan.stops, again.stops, strict=True):
        assert now.container == then.container
        assert dataclasses.replace(now, again=then.again) == then
    assert again.digest == plan.digest


def test_it_is_whose_it_is_from_then_on() -> None:
    assert read_back(CASES["first_release"](), "mk@other").by == "mk@other"


def test_a_baseline_is_read_as_it_was_written_but_for_its_details() -> None:
    one = Health("c", 7, "then", 1, (Check("ready", True), Check("generation", False, "x")), 3.5)
    again = Health.from_json(json.loads(json.dumps(one.to_json())))
    bare = tuple(dataclasses.replace(c, detail="") for c in one.checks)
    assert again == dataclasses.replace(one, checks=bare)


# --- takeover.sh ----------------------------------------------------------------------------------


def armed(tmp_path: Path, since_renewal: float, **changes: object) -> tuple[StubHost, Path, Path]:
    """A host with an armed release of which nobody renewed the lease for so many seconds."""
    host = StubHost(tmp_path)
    plan = dataclasses.replace(CASES["first_release"](), lease=float(LEASE), **changes)  # type: ignore[arg-type]
    engine = dataclasses.replace(a.ENGINE, root=str(host.docker_root))
    plan = dataclasses.replace(plan, engine=engine)
    directory = host.stands(plan, bound(plan))
    run = tmp_path / "run"
    run.mkdir()
    tx = bound(plan).transaction
    (run / "transaction").write_text(f"id={tx}\nby=lost@ops\nsince=T\nowner={tx}\n")
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    (run / "lease").write_text(f"{round(uptime - since_renewal) + LEASE} {tx}\n")
    return host, directory, run


def owner(run: Path) -> dict[str, str]:
    lines = (run / "transaction").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_one_that_nobody_renews_is_taken_once(tmp_path: Path) -> None:
    host, directory, run = armed(tmp_path, LEASE * 0.75)
    before = (run / "lease").read_text()
    assert host.run(directory / "takeover.sh", "other.1", "mk@other")[0] == 0
    assert (owner(run)["owner"], owner(run)["by"]) == ("other.1", "mk@other")
    assert (run / "lease").read_text() != before
    assert '"by":"mk@other","event":"resume"' in host.journal("glm53")
    # its connection was lost, and it asks again
    once = host.journal("glm53")
    assert host.run(directory / "takeover.sh", "other.1", "mk@other")[0] == 0
    assert host.journal("glm53") == once
    assert not list(run.glob(".*"))


def test_one_that_is_renewed_is_not(tmp_path: Path) -> None:
    host, directory, run = armed(tmp_path, LEASE * 0.2)
    # each look at the clock between two looks at the lease is where its controller renews it
    sleep = host.stub / "bin" / "sleep"
    sleep.write_text(f"#!/bin/sh\nread -r u t <{run}/lease; echo $((u + 8)) $t >{run}/lease\n")
    sleep.chmod(0o755)
    status, said = host.run(directory / "takeover.sh", "other.1", "mk@other")
    assert status == 75
    assert "owned by lost@ops since T" in said
    assert "s of it are left" in said
    assert "restore.sh" in said
    assert owner(run)["by"] == "lost@ops"


def test_one_whose_lease_is_over_is_the_guards(tmp_path: Path) -> None:
    host, directory, run = armed(tmp_path, LEASE + 5)
    status, said = host.run(directory / "takeover.sh", "other.1", "mk@other")
    assert (status, "the guard goes back" in said) == (75, True)
    assert owner(run)["by"] == "lost@ops"


def test_one_without_a_guard_waits_for_ever(tmp_path: Path) -> None:
    host, directory, run = armed(tmp_path, LEASE + 500, guard=False)
    assert host.run(directory / "takeover.sh", "other.1", "mk@other")[0] == 0
    assert owner(run)["owner"] == "other.1"


def test_none_after_a_reboot_nor_after_its_end(tmp_path: Path) -> None:
    host, directory, run = armed(tmp_path, LEASE)
    for name in ("lease", "transaction"):
        (run / name).unlink()
    status, said = host.run(directory / "takeover.sh", "other.1", "mk@other")
    assert status == 70
    assert f"sudo sh {directory}/restore.sh" in said
    (directory / "armed").rename(directory / "restoring")
    assert host.run(directory / "takeover.sh", "other.1", "mk@other")[0] == 76
    assert not list(run.iterdir())


def test_who_lost_it_commits_nothing(tmp_path: Path) -> None:
    host, directory, _ = armed(tmp_path, LEASE * 0.75)
    assert host.run(directory / "takeover.sh", "other.1", "mk@other")[0] == 0
    ident = bound(CASES["first_release"]()).container
    (host.stub / "containers" / ident / "status").write_text("running\n")
    verified = (ident, "77", "then")
    for lost in ((), ("glm53-1-0badcafe",)):
        status, said = host.run(directory / "commit.sh", *verified, *lost)
        assert (status, "taken over by mk@other" in said) == (79, True)
    assert (directory / "armed").exists()
    assert host.run(directory / "commit.sh", *verified, "other.1")[0] == 0
    assert (directory / "committed").exists()
