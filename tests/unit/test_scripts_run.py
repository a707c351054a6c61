"""What single scripts decide, run on a host of stubs. Whole transactions run in tests/lab."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rollpin import places
from rollpin.plan import Plan

from . import builders as a
from .cases import bound, rollback_before_1
from .stub_host import StubHost

OTHER = "7f" * 32


def at(host: StubHost, plan: Plan) -> Plan:
    """The plan, for an engine whose root lies in the host's folder."""
    return dataclasses.replace(
        plan, engine=dataclasses.replace(a.ENGINE, root=str(host.docker_root))
    )


def displacing(host: StubHost, **scan: Any) -> tuple[Plan, Path]:
    plan = at(host, a.plan(a.host(a.scan(**scan))))
    assert not plan.refused, plan.refusals
    directory = host.stands(plan, bound(plan))
    (host.stub / "containers" / a.SCAN / "status").write_text("exited\n")
    (directory / "armed").rename(directory / "committed")
    (host.state / "displaced").mkdir()
    return plan, directory


@pytest.mark.parametrize(
    ("asked", "theirs", "room"),
    [
        (("0",), "1 2 ", True),
        (("0",), "0 1 ", False),
        (("1",), "10 ", True),
        (("0", "3"), "3 ", False),
        (("all",), "7 ", False),
        (("0",), "all ", False),
        (("0",), "nvidia.com/gpu=0 ", False),
        (("0",), "GPU-00000001 ", False),
        (("GPU-00000001",), "0 ", False),
        (("0",), "", False),  # a runtime's environment, which nobody looked at
        ((), "all ", True),
    ],
)
def test_a_container_is_given_back_only_where_there_is_room(
    tmp_path: Path, asked: Sequence[str], theirs: str, room: bool
) -> None:
    host = StubHost(tmp_path)
    # The name of the service is free, so its port is what makes it displace the container.
    _, directory = displacing(host, gpus=asked, network="bridge", ports=(30000,))
    holder = host.stub / "containers" / OTHER
    holder.mkdir()
    (holder / "name").write_text("holder")
    (holder / "gpu").write_text("gpu\n")
    (holder / "gpus").write_text(f"{theirs}\n")
    (host.stub / "ids").write_text(f"{OTHER}\n")
    status, said = host.run(directory / places.giveback_name(a.SCAN))
    if room:
        assert status == 0, said
        assert host.changes() == [
            ["docker", "start", a.SCAN],
            ["docker", "update", "--restart", "always", a.SCAN],
        ]
    else:
        assert status == 3
        assert "refused: no room, holder holds its GPUs" in said
        assert host.changes() == []


def test_an_open_transaction_is_not_given_back_into(tmp_path: Path) -> None:
    host = StubHost(tmp_path)
    _, directory = displacing(host)
    (directory / "committed").rename(directory / "armed")
    status, said = host.run(directory / places.giveback_name(a.SCAN))
    assert status == 3
    assert "an open transaction owns this host" in said
    assert host.calls() == []


def test_a_swap_leaves_a_host_that_changed_untouched(tmp_path: Path) -> None:
    host = StubHost(tmp_path)
    plan = at(host, a.plan(a.host(a.production())))
    directory = host.stands(plan, bound(plan))
    (host.stub / "containers" / a.PP4 / "expected").write_text("/glm53-pp4 exited then no:0")
    status, said = host.run(directory / "swap.sh")
    assert status == 74
    assert "the host changed since the plan" in said
    assert host.changes() == []
    assert (directory / "logs/swap.rc").read_text() == "74\n"


def test_a_swap_leaves_a_host_untouched_whose_gpus_somebody_took(tmp_path: Path) -> None:
    host = StubHost(tmp_path)
    plan = at(host, a.plan(a.host(a.production())))
    directory = host.stands(plan, bound(plan))
    newcomer = host.stub / "containers" / OTHER
    newcomer.mkdir()
    (newcomer / "gpu").write_text(f"{OTHER}\n")
    (host.stub / "ids").write_text(f"{a.PP4}\n{OTHER}\n")
    status, said = host.run(directory / "swap.sh")
    assert status == 74
    assert f"GPUs were held by '{a.PP4}', are held by '{a.PP4} {OTHER}'" in said
    assert host.changes() == []


def test_a_swap_that_is_no_longer_armed_does_nothing(tmp_path: Path) -> None:
    host = StubHost(tmp_path)
    plan = at(host, a.plan(a.host(a.production())))
    directory = host.stands(plan, bound(plan))
    (directory / "armed").rename(directory / "restoring")
    assert host.run(directory / "swap.sh")[0] == 76
    assert host.calls() == []


def test_a_commit_keeps_only_what_was_verified(tmp_path: Path) -> None:
    host = StubHost(tmp_path)
    plan = at(host, a.plan(a.host(a.production())))
    directory = host.stands(plan, bound(plan))
    (host.stub / "containers" / a.R1 / "status").write_text("running\n")
    assert host.run(directory / "commit.sh", a.R1, "78", "then")[0] == 77
    assert host.changes() == []
    assert (directory / "armed").exists()


def test_another_engine_is_not_touched(tmp_path: Path) -> None:
    host = StubHost(tmp_path)
    plan = at(host, a.plan(a.host(a.production())))
    directory = host.stands(plan, bound(plan))
    (host.stub / "engine").write_text("OTHER:ID /var/lib/docker\n")
    status, said = host.run(directory / "restore.sh", "guard")
    assert status == 4
    assert "another engine answers" in said
    assert host.changes() == []
    assert (directory / "restoring").exists()


def test_a_restore_goes_on_past_what_is_gone(tmp_path: Path) -> None:
    host = StubHost(tmp_path)
    plan = at(host, a.plan(a.host(a.production(), a.scan())))
    directory = host.stands(plan, bound(plan))
    assert host.run(directory / "swap.sh")[0] == 0
    host.calls()
    host.removes(a.PP4)
    status, said = host.run(directory / "restore.sh", "guard")
    assert status == 1
    assert f"glm53-pp4 ({a.PP4}) is gone from this engine; it was: lmsysorg/sglang" in said
    assert "could not be made again (its image" in said
    assert f"): sudo sh {directory}/recreate-{a.PP4[:12]}.sh" in said
    assert ["docker", "start", a.SCAN] in host.changes()
    assert host.policy(a.SCAN) == "always"
    assert (directory / "restoring").exists()


def test_a_restore_makes_again_what_was_removed(tmp_path: Path) -> None:
    """Under its name, running, with its policy; the journal says what was lost with it."""
    host = StubHost(tmp_path)
    plan = at(host, a.plan(a.host(a.production(), a.scan())))
    directory = host.stands(plan, bound(plan))
    assert host.run(directory / "swap.sh")[0] == 0
    host.removes(a.SCAN)
    (host.stub / "image").write_text(a.scan().image_id)
    (host.stub / "created").write_text(a.STRANGER)
    status, said = host.run(directory / "restore.sh", "guard")
    assert status == 0, said
    made = host.stub / "containers" / a.STRANGER
    assert (made / "name").read_text() == "dsv4_scan"
    assert (made / "status").read_text() == "running\n"
    assert host.policy(a.STRANGER) == "always"
    told = list(map(json.loads, host.journal("glm53").splitlines()))
    assert [e["event"] for e in told][-2:] == ["recreated", "restored"]
    assert f"dsv4_scan ({a.SCAN}) was gone" in told[-2]["detail"]
    assert told[-2]["detail"].endswith("its log")
    assert "sk-very-secret" not in said + host.journal("glm53")


def test_a_rollback_that_is_taken_back_displaces_again(tmp_path: Path) -> None:
    """The restore notes of what it brought back are on the host again."""
    host = StubHost(tmp_path)
    plan = at(host, rollback_before_1())
    directory = host.stands(plan, bound(plan))
    (host.stub / "ids").write_text("".join(f"{i}\n" for i in plan.gpu_holders))
    displaced = host.state / "displaced"
    displaced.mkdir()
    for ident in (a.PP4, a.SCAN):
        (displaced / f"{ident}.md").write_text(f"note of {ident}")
    assert host.run(directory / "swap.sh")[0] == 0
    assert host.run(directory / "commit.sh", a.PP4, "77", "then")[0] == 0
    assert list(displaced.iterdir()) == []
    status, said = host.run(directory / "restore.sh")
    assert status == 0, said
    assert (directory / "rolled-back").exists()
    assert {p.name: p.read_text() for p in displaced.iterdir()} == {
        f"{i}.md": f"note of {i}" for i in (a.PP4, a.SCAN)
    }
