"""Going back: to the release before, to what stood before release 1, by hand, and in the middle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollpin.lab import furnish
from rollpin.lab.host import Host
from tests.lab import deploying
from tests.lab.deploying import (
    QUICK,
    QUICKLY,
    RELEASES,
    STATE,
    Deployer,
    Snapshot,
    Watched,
    fresh,
    generation,
    journal,
    left_over,
    link,
    look,
    look_at,
    release_json,
)

ROLLBACK = "deploys/rollback.py"
RESTORE = "deploys/restore.py"
RESTORE_DISPLACED = "deploys/restore_displaced.py"


@pytest.fixture
def fleet(all_hosts: list[Host]) -> list[Host]:
    """The lab's hosts as `lab up` left them."""
    return fresh(all_hosts[:3])


def env(**more: str) -> dict[str, object]:
    """Data of a quick deploy; another variable makes another release."""
    return {"rollpin_settle": "1s", "rollpin_env": {**QUICK, **more}}


def test_release_over_release_and_back(deployer: Deployer, fleet: list[Host]) -> None:
    """Release 2 over 1; a broken 3 gives 2 back; then each host goes back its own way."""
    one, three = fleet = [fleet[0], fleet[2]]
    names = [h.name for h in fleet]
    start = look_at(fleet)

    first = deployer.run(on=names, data=env())
    assert first.words == dict.fromkeys(names, "live"), first
    ones = {n: s.named("glm53")[0] for n, s in look_at(fleet).items()}

    second = deployer.run(on=names, data=env(RELEASE="two"))
    assert second.status == 0, second
    assert second.words == dict.fromkeys(names, "live"), second
    after_two = look_at(fleet)
    twos = {n: s.named("glm53")[0] for n, s in after_two.items()}
    for host in fleet:
        seen = after_two[host.name]
        assert "release 2" in second.verdicts[host.name].line
        # release 1 is kept, stopped, and nothing starts it
        assert seen.containers[ones[host.name]][:3] == ["glm53.r1", "exited", "no"]
        assert seen.named("glm53")[1][1:3] == ["running", "unless-stopped"]
        assert link(host) == f"{RELEASES}/2/restore.sh"
        assert release_json(host, 2)["replaces"] == 1
        _closed(seen)
        # the production container's note is still that of release 1
        note = host.run(f"cat {STATE}/displaced/{start[host.name].named('glm53-pp4')[0]}.md")
        assert "displaced by glm53 release 1" in note.stdout

    third = deployer.run(on=[one.name], data=env(ROLLPIN_LAB_FAULT="crash-load"))
    assert third.status == 1, third
    assert third.words == {one.name: "restored"}, third
    assert left_over(after_two[one.name], look(one)) == {}, third
    assert link(one) == f"{RELEASES}/2/restore.sh"

    # one release back: by deploys/rollback.py without a word more, and by hand
    back = deployer.run(ROLLBACK, on=[one.name])
    assert back.status == 0, back
    assert back.words == {one.name: "live"}, back
    assert "rolled back to release 1" in back.verdicts[one.name].below
    assert " rolled-back" in three.run(["sh", f"{STATE}/RESTORE-glm53"], timeout=120).stdout
    after = look_at(fleet)
    for host in fleet:
        kept = after[host.name].containers
        assert kept[ones[host.name]][:3] == ["glm53", "running", "unless-stopped"]
        assert kept[twos[host.name]][:3] == ["glm53.r2", "exited", "no"]
        assert generation(host) == "42"
        _closed(after[host.name])
    assert link(three) == f"{RELEASES}/1/restore.sh"

    # a rollback is taken back like any other release
    assert link(one) == f"{RELEASES}/4/restore.sh"
    one.run(["sh", f"{STATE}/RESTORE-glm53"], timeout=120)
    kept = look(one).containers
    assert kept[twos[one.name]][:3] == ["glm53", "running", "unless-stopped"]
    assert kept[ones[one.name]][:3] == ["glm53.r1", "exited", "no"]
    assert generation(one) == "42"

    # to what stood before release 1: over both releases at once, and from release 1 with a shell
    last = deployer.run(ROLLBACK, on=[one.name], data={"to": 0})
    assert last.status == 0, last
    assert last.words == {one.name: "live"}, last
    assert "rolled back to what stood before release 1" in last.verdicts[one.name].below
    # whoever may not is told how
    told = three.run(["sh", f"{STATE}/RESTORE-glm53"], user="deploy", check=False)
    assert told.status == 2
    assert "run it as root: sudo sh" in told.stdout
    # a second restore takes no more away: release 2 was taken back, and nothing is open
    told = three.run(["sudo", "sh", f"{STATE}/RESTORE-glm53"], user="deploy", check=False)
    assert told.status == 3
    further = f"{RELEASES}/1/restore.sh rollback"
    assert f"sudo sh {further}" in told.stdout
    three.run(["sudo", "sh", *further.split()], user="deploy", timeout=120)
    assert link(three) == ""
    for host in fleet:
        seen = look(host)
        # production and dsv4_scan have their ids, names, states and policies
        assert {i: seen.containers[i][:4] for i in start[host.name].containers} == (
            start[host.name].standing()
        )
        assert "glm53" not in [c[0] for c in seen.containers.values()]
        assert host.run(f"ls {STATE}/displaced").stdout == ""
        assert generation(host) == "42"
        _closed(seen)
    again = deployer.run(ROLLBACK, on=[three.name])
    assert again.status == 1, again
    assert again.words == {three.name: "refused"}, again
    assert "no release of glm53 serves on this host" in again.verdicts[three.name].below
    assert deploying.differences(seen, look(three)) == {}


def _closed(seen: Snapshot) -> None:
    """No transaction is open, and nothing of one is left."""
    assert (seen.units, seen.unit_files, seen.ballast) == ([], [], [])
    assert not [p for p in seen.processes if "rollpin" in p]
    assert [f for f in seen.files if f.startswith("/run/rollpin/")] == []


def test_back_in_the_middle(deployer: Deployer, fleet: list[Host]) -> None:
    """A person with a shell, and deploys/restore.py, take an open transaction away."""
    by_hand, by_deploy = fleet[:2]
    hosts = [by_hand, by_deploy]
    before = look_at(hosts)
    faults = {"rollpin_env": {**QUICK, "ROLLPIN_LAB_FAULT": "never-ready"}}
    run = Watched(deployer.start(on=[h.name for h in hosts], data=faults))
    for host in hosts:
        run.until(f"[{host.name}] waiting for glm53 to be ready")
        assert link(host) == f"{RELEASES}/1/restore.sh"
    # another deploy is told who owns the host
    other = deployer.run(on=[by_hand.name], data=QUICKLY)
    assert other.words == {by_hand.name: "refused"}, other
    below = other.verdicts[by_hand.name].below
    assert "an open transaction owns the host: glm53 release 1" in below
    assert "of its lease left" in below

    said = by_hand.run(["sh", f"{STATE}/RESTORE-glm53"], timeout=120).stdout
    assert said.splitlines()[-1].endswith(" restored")
    restore = deployer.run(RESTORE, on=[by_deploy.name])
    assert restore.status == 0, restore
    assert restore.words == {by_deploy.name: "restored"}, restore
    ended = run.end()
    assert ended.status == 1, ended
    assert set(ended.words) == {h.name for h in hosts}
    for host in hosts:
        assert ended.words[host.name].startswith("restored"), ended
        assert left_over(before[host.name], look(host)) == {}
        assert generation(host) == "42"
        assert journal(host)[-1]["event"] == "restored"
    # with nothing open there is nothing to do
    seen = look(by_deploy)
    nothing = deployer.run(RESTORE, on=[by_deploy.name])
    assert nothing.status == 0, nothing
    assert deploying.differences(seen, look(by_deploy)) == {}


@pytest.mark.slow
def test_displaced_container_comes_back_when_there_is_room(
    deployer: Deployer, fleet: list[Host], tmp_path: Path, image: str
) -> None:
    """While glm53 holds every GPU nothing comes back; on one GPU there is room for the rest."""
    host = fleet[0]
    idle = furnish.idle(image)
    idle[idle.index("all")] = '"device=6,7"'
    host.run(["docker", "rm", "-f", furnish.IDLE])
    ident = host.run(idle).stdout.strip()
    # it was started this moment
    first = deployer.run(on=[host.name], data={**QUICKLY, "rollpin_idle": "0s"})
    assert first.words == {host.name: "live"}, first

    seen = look(host)
    full = deployer.run(RESTORE_DISPLACED, on=[host.name], data={"container": furnish.IDLE})
    assert full.status == 1, full
    assert full.words == {host.name: "refused"}, full
    assert f"there is no room for {furnish.IDLE}: glm53" in full.verdicts[host.name].below
    assert deploying.differences(seen, look(host)) == {}
    unknown = deployer.run(RESTORE_DISPLACED, on=[host.name], data={"container": "nobody"})
    assert unknown.status == 1, unknown
    assert "nobody is not displaced on this host" in unknown.verdicts[host.name].below

    small = deploying.profile(
        tmp_path,
        ("GPUS=all", "GPUS=0"),
        ("--tp-size 2 --pp-size 4", "--tp-size 1 --pp-size 1"),
        name="small",
    )
    second = deployer.run(on=[host.name], data=QUICKLY, profile=small)
    assert second.words == {host.name: "live"}, second
    given = deployer.run(RESTORE_DISPLACED, on=[host.name], data={"container": furnish.IDLE})
    assert given.status == 0, given
    after = look(host)
    assert after.containers[ident][:3] == [furnish.IDLE, "running", "always"]
    assert after.named("glm53")[1][1] == "running"
    notes = host.run(["ls", f"{STATE}/displaced"]).stdout
    assert ident not in notes
    pp4, _ = after.named("glm53-pp4")
    assert pp4 in notes
    assert [x["event"] for x in journal(host)[-2:]] == ["give-back", "given-back"]
    # production wants all GPUs: it stays away, and says so by hand too
    script = host.run(f"sed -n 's/^ *sudo sh \\(.*giveback.*\\)/\\1/p' {STATE}/displaced/{pp4}.md")
    refused = host.run(["sh", script.stdout.strip()], check=False)
    assert refused.status == 3
    assert "refused: no room, glm53 holds its GPUs" in refused.stdout
    assert json.loads(host.run(["docker", "inspect", "glm53"]).stdout)[0]["State"]["Running"]
