"""What the scripts do not do: on a host of stubs, each a way in which an undo once went wrong."""

from __future__ import annotations

import os
from pathlib import Path

from rollpin import places, scripts
from rollpin.plan import Plan

from . import builders as a
from .cases import bound
from .stub_host import StubHost
from .test_scripts_run import at


def staged(folder: Path) -> tuple[StubHost, Plan, Path]:
    """A host with dsv4_scan and glm53-pp4, on which release 1 is armed."""
    host = StubHost(folder)
    plan = at(host, a.plan(a.host(a.scan())))
    assert not plan.refused, plan.refusals
    return host, plan, host.stands(plan, bound(plan))


def docker_fails(host: StubHost, verb: str, only: str = "") -> None:
    """The stub's `docker VERB` fails, for command lines that name `only`."""
    docker = host.stub / "bin" / "docker"
    text = docker.read_text()
    case = f'{verb})\n    case "$*" in *{only}*) exit 1 ;; esac\n'
    assert f"{verb})" in text
    docker.write_text(text.replace(f"{verb})", case, 1))


def _began(pid: int) -> str:
    """When a process was started, as the kernel counts."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def ends(container: Path) -> None:
    (container / "status").write_text("exited\n")
    (container / "expected").write_text("/dsv4_scan exited x always:0")


def test_a_swap_that_found_the_host_changed_is_taken_back_without_a_change(tmp_path: Path) -> None:
    host, _, directory = staged(tmp_path)
    (host.stub / "engine-pid").write_text(f"{os.getpid()}\n")
    (directory / "engine-run").write_text(f"{os.getpid()} {_began(os.getpid())}")
    scan = host.stub / "containers" / a.SCAN
    ends(scan)
    assert host.run(directory / "swap.sh", "controller", "me")[0] == 74
    assert not (directory / "touched").exists()
    host.calls()
    assert host.run(directory / "restore.sh", "controller", "me")[0] == 0
    assert (directory / "restored").exists()
    # Its owner stopped it: nobody starts it, nobody gives it a policy.
    assert [c for c in host.changes() if a.SCAN in c or a.PP4 in c] == []
    assert (scan / "status").read_text() == "exited\n"


def test_a_swap_finds_before_it_begins_that_the_new_container_is_gone(tmp_path: Path) -> None:
    host, plan, directory = staged(tmp_path)
    host.removes(bound(plan).container)
    status, said = host.run(directory / "swap.sh", "controller", "me")
    assert (status, host.changes()) == (74, [])
    assert f"glm53.r1 ({bound(plan).container}) is gone" in said
    assert not (directory / "touched").exists()


def test_what_an_engine_took_down_before_the_swap_comes_back(tmp_path: Path) -> None:
    """Another process is the engine now than when the release was armed."""
    host, _, directory = staged(tmp_path)
    (directory / "engine-run").write_text("2147483647 1")
    (host.stub / "engine-pid").write_text(f"{os.getpid()}\n")
    ends(host.stub / "containers" / a.SCAN)
    assert host.run(directory / "swap.sh", "controller", "me")[0] == 74
    host.calls()
    assert host.run(directory / "restore.sh", "controller", "me")[0] == 0
    assert ["docker", "start", a.SCAN] in host.changes()
    assert host.policy(a.SCAN) == "always"
    # For the controller: there is something to verify.
    assert (directory / "touched").exists()


def test_what_somebody_removed_before_the_swap_is_made_again(tmp_path: Path) -> None:
    host, _, directory = staged(tmp_path)
    host.removes(a.SCAN)
    (host.stub / "image").write_text(a.scan().image_id)
    (host.stub / "created").write_text(a.STRANGER)
    status, said = host.run(directory / "restore.sh", "controller", "me")
    assert status == 0, said
    made = host.stub / "containers" / a.STRANGER
    assert (made / "name").read_text() == "dsv4_scan"
    assert (made / "status").read_text() == "running\n"


def test_what_somebody_replaced_before_the_swap_is_left_to_them(tmp_path: Path) -> None:
    host, _, directory = staged(tmp_path)
    host.removes(a.SCAN)
    newcomer = host.stub / "containers" / a.STRANGER
    newcomer.mkdir()
    (newcomer / "name").write_text("dsv4_scan")
    (newcomer / "status").write_text("running\n")
    assert host.run(directory / "restore.sh", "controller", "me")[0] == 0
    assert (directory / "restored").exists()
    assert [c for c in host.changes() if c[1] in ("create", "start", "stop", "rename")] == []


def test_the_tag_of_a_release_goes_although_its_container_is_gone(tmp_path: Path) -> None:
    """Somebody removed it, or a power cut came between the two."""
    host, plan, directory = staged(tmp_path)
    assert host.run(directory / "swap.sh", "controller", "me")[0] == 0
    host.removes(bound(plan).container)
    host.calls()
    assert host.run(directory / "restore.sh", "guard")[0] == 0
    assert ["docker", "rmi", "--no-prune", "rollpin/glm53:1"] in host.changes()


def test_what_was_staged_is_not_forgotten_while_the_engine_is_away(tmp_path: Path) -> None:
    """Its directory is what the next deploy finds it by."""
    host, plan, directory = staged(tmp_path)
    (directory / "armed").unlink()
    (directory / "tx").write_text(bound(plan).transaction)
    (host.stub / "engine").write_text("OTHER:ID /var/lib/docker\n")
    status, said = host.run(scripts.render_unstage(plan, bound(plan), False, "the host went down"))
    assert (status, host.changes()) == (1, [])
    assert "stays until the next deploy of glm53" in said
    assert directory.is_dir()


def test_a_container_that_cannot_be_inspected_is_not_taken_for_absent(tmp_path: Path) -> None:
    host, plan, directory = staged(tmp_path)
    new = bound(plan).container
    assert host.run(directory / "swap.sh", "controller", "me")[0] == 0
    host.calls()
    docker_fails(host, "inspect", new)
    host.run(directory / "restore.sh", "guard")
    # Asked or not: it is told to stop before anything else is started.
    changes = host.changes()
    stops = [n for n, c in enumerate(changes) if c[1:2] == ["stop"] and new in c]
    starts = [n for n, c in enumerate(changes) if c[1:2] == ["start"]]
    assert stops
    assert not starts or stops[0] < starts[0]


def test_a_release_that_was_never_armed_leaves_no_link_to_itself(tmp_path: Path) -> None:
    host, _, directory = staged(tmp_path)
    (directory / "armed").unlink()
    link = host.state / "RESTORE-glm53"
    link.unlink(missing_ok=True)
    link.symlink_to(directory / "restore.sh")
    status, said = host.run(directory / "restore.sh")
    assert status == 0
    assert "never stopped anything" in said
    assert '"event":"refused"' in host.journal("glm53").splitlines()[-1]
    assert not link.is_symlink()
    assert host.changes() == []


def test_restoring_twice_does_not_take_the_release_before_away(tmp_path: Path) -> None:
    host, _, directory = staged(tmp_path)
    (directory / "armed").rename(directory / "committed")
    newer = directory.parent / "2"
    (newer / "logs").mkdir(parents=True)
    (newer / "restored").touch()
    status, said = host.run(directory / "restore.sh")
    assert status == 3
    assert f"{directory}/restore.sh rollback" in said
    assert (directory / "committed").exists()
    assert host.changes() == []


def test_nothing_is_given_back_when_the_engine_does_not_say_who_runs(tmp_path: Path) -> None:
    host, _, directory = staged(tmp_path)
    (directory / "armed").rename(directory / "committed")
    (host.state / "displaced").mkdir(exist_ok=True)
    (host.stub / "containers" / a.SCAN / "status").write_text("exited\n")
    docker_fails(host, "ps")
    status, said = host.run(directory / places.giveback_name(a.SCAN))
    assert (status, host.changes()) == (3, [])
    assert "refused" in said


def test_a_stage_of_another_controller_is_not_taken_back(tmp_path: Path) -> None:
    host, plan, directory = staged(tmp_path)
    (directory / "armed").unlink()
    (directory / "tx").write_text("glm53-1-somebody")
    script = scripts.render_unstage(plan, bound(plan), True, "it lost")
    file = tmp_path / "unstage.sh"
    file.write_text(host.moved(script))
    assert host.run(file)[0] == 0
    assert directory.is_dir()
    assert host.changes() == []
