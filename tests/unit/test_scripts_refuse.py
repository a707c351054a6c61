"""What the scripts do not do: on a host of stubs, each a way in which an undo once went wrong."""

from __future__ import annotations

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


def test_a_swap_that_found_the_host_changed_is_taken_back_without_a_change(tmp_path: Path) -> None:
    host, _, directory = staged(tmp_path)
    scan = host.stub / "containers" / a.SCAN
    (scan / "status").write_text("exited\n")
    (scan / "expected").write_text("/dsv4_scan exited x always:0")
    assert host.run(directory / "swap.sh", "controller", "me")[0] == 74
    assert not (directory / "touched").exists()
    host.calls()
    assert host.run(directory / "restore.sh", "controller", "me")[0] == 0
    assert (directory / "restored").exists()
    # Its owner stopped it: nobody starts it, nobody gives it a policy.
    assert [c for c in host.changes() if a.SCAN in c or a.PP4 in c] == []
    assert (scan / "status").read_text() == "exited\n"


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
