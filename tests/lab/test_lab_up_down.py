"""Labs come and go: again, side by side, over a killed run, and without a trace."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rollpin.cli.main import rollpin
from rollpin.errors import LabError, UsageError
from rollpin.lab import base, down, furnish, machine, network, power, state, up
from rollpin.lab.host import Host, hosts
from rollpin.lab.state import Lab

from . import machine_snapshot

ROLLPIN = str(Path(sys.executable).with_name("rollpin"))


def test_up_again_changes_nothing(lab: Lab, all_hosts: list[Host]) -> None:
    for host in all_hosts:
        host.power_on()
    before = [[one["State"]["StartedAt"] for one in host.containers()] for host in all_hosts]
    said: list[str] = []
    began = time.monotonic()
    assert up.up(lab.name, say=said.append) == lab
    assert time.monotonic() - began < 10
    assert "was up, nothing to do" in said[-1]
    after = [[one["State"]["StartedAt"] for one in host.containers()] for host in all_hosts]
    assert after == before
    with pytest.raises(UsageError, match="rollpin lab down"):
        up.up(lab.name, 1)


def test_status(lab: Lab) -> None:
    shown = CliRunner().invoke(rollpin, ["lab", "--lab", lab.name, "status", "--json"])
    assert shown.exit_code == 0
    told = json.loads(shown.stdout)
    assert [seat["name"] for seat in told["hosts"]] == [seat.name for seat in lab.seats]
    assert all(seat["on"] for seat in told["hosts"])
    assert told["images"] == lab.images


OTHER = f"{state.default_name()}-other"


@pytest.fixture(scope="module")
def other_lab(lab: Lab) -> Iterator[tuple[Lab, machine_snapshot.Snapshot]]:
    """A second lab of one host, up over a run that was killed, and the machine before it."""
    down.down(OTHER)
    before = machine_snapshot.take(OTHER)
    argv = [ROLLPIN, "lab", "--lab", OTHER, "up", "--hosts", "1"]
    killed = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    folder = state.directory(OTHER)
    for _ in range(500):
        if folder.exists() and state.exists(OTHER) and power.is_on(state.load(OTHER), "lab1"):
            break
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    opened = state.load(OTHER)
    keeper = power.supervisor(opened, "lab1")
    assert keeper is not None
    # a half-dead host: nspawn and its init go on without the one that keeps them
    keeper.send(signal.SIGKILL)
    assert keeper.wait_gone(5)
    machine.run(["ip", "link", "set", opened.bridge, "down"])
    yield up.up(OTHER, 1), before
    down.down(OTHER)


def test_up_works_over_a_killed_run(
    other_lab: tuple[Lab, machine_snapshot.Snapshot],
) -> None:
    (host,) = hosts(other_lab[0])
    assert [one["Name"] for one in host.containers()] == ["/dsv4_scan", "/glm53-pp4"]
    furnish.wait_healthy(host)


def test_two_labs_side_by_side(
    lab: Lab, other_lab: tuple[Lab, machine_snapshot.Snapshot], all_hosts: list[Host]
) -> None:
    other, _ = other_lab
    assert other.subnet != lab.subnet
    assert other.bridge != lab.bridge
    assert network.is_up(lab)
    assert network.is_up(other)
    theirs, ours = hosts(other)[0], all_hosts[0]
    began = ours.run(["docker", "inspect", "-f", "{{.State.StartedAt}}", "glm53-pp4"]).stdout
    boot = ours.boot_id()
    theirs.power_off()
    theirs.power_on()
    assert ours.boot_id() == boot
    now = ours.run(["docker", "inspect", "-f", "{{.State.StartedAt}}", "glm53-pp4"]).stdout
    assert now == began
    # each lab's hosts know their own registry and no way to the other's
    away = theirs.run(["curl", "-sS", "-m", "3", f"http://{lab.registry}/v2/"], check=False)
    assert away.status != 0


def test_down_leaves_nothing(lab: Lab, other_lab: tuple[Lab, machine_snapshot.Snapshot]) -> None:
    _, before = other_lab
    assert machine_snapshot.take(OTHER).processes
    assert down.down(OTHER) is True
    # whoever adopted the dead (this machine's init) may take a moment to bury them
    for _ in range(100):
        left = machine_snapshot.left(OTHER, before, machine_snapshot.take(OTHER))
        if not left:
            break
        time.sleep(0.05)
    assert left == {}
    assert down.down(OTHER) is False
    with pytest.raises(LabError, match=rf"the labs .*\b{lab.name}\b.* stand on it"):
        down.down(OTHER, purge=True)
    assert base.IMAGE.tree.exists()


def test_nothing_is_sent_while_the_bridge_is_down(
    lab: Lab, other_lab: tuple[Lab, machine_snapshot.Snapshot]
) -> None:
    other, _ = other_lab
    if not state.exists(OTHER):
        other = up.settle(OTHER, 1)
    network.up(other)
    machine.run(["ip", "link", "del", other.bridge])
    with pytest.raises(LabError, match="is down"):
        hosts(other)[0].run(["true"])
    route = machine.run(["ip", "route", "get", other.seats[0].address], check=False)
    assert "default" not in route.stdout
    assert "via" not in route.stdout
    assert route.returncode != 0


def test_purge_drops_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    (cache / "bookworm-0").mkdir(parents=True)
    monkeypatch.setattr(base, "CACHE", cache)
    base.purge()
    assert not cache.exists()


# --- elsewhere ---------------------------------------------------------------------------------


def test_without_root_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(LabError, match=r"needs root .* point an inventory at hosts of your own"):
        up.up("unlucky")


def test_without_nspawn_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(LabError, match=r"systemd-container.*no apt-get.*hosts of your own"):
        up.up("unlucky")


def test_subnets_are_free() -> None:
    taken = ["198.18.0.0/24", "198.18.1.64/26", "10.0.0.0/8"]
    assert str(network.choose(taken)) == "198.18.2.0/24"
    with pytest.raises(LabError, match="No /24"):
        network.choose(["198.16.0.0/13"])


def test_names_are_checked() -> None:
    with pytest.raises(UsageError, match="no name for a lab"):
        state.checked_name("../etc")
