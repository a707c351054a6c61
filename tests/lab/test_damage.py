"""What people and broken disks do to the state directory; and runs that chose nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollpin.lab.host import Host
from rollpin.lab.state import Lab
from tests.lab.deploying import (
    QUICKLY,
    RELEASES,
    ROOT,
    STATE,
    Deployer,
    generation,
    look,
)

RECORD = f"{RELEASES}/1/release.json"


def status(lab: Lab, host: Host, *flags: str) -> subprocess.CompletedProcess[str]:
    return rollpin(lab, "status", "inventory/lab.py", "--limit", host.name, *flags)


def rollpin(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "rollpin"), *words],
        cwd=ROOT,
        env={**os.environ, "ROLLPIN_LAB": lab.name},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_damaged_state_directory_is_refused_and_mended(
    lab: Lab, host: Host, deployer: Deployer
) -> None:
    here = [host.name]
    assert deployer.run(on=here, data=QUICKLY).status == 0
    seen = status(lab, host)
    assert seen.returncode == 0, seen
    assert f"{host.name}: glm53 release 1, {lab.images['latest'][:19]}" in seen.stdout
    (told,) = json.loads(status(lab, host, "--json").stdout)
    assert [(s["name"], s["release"]) for s in told["services"]] == [("glm53", 1)]
    there = (host.name, "-i", "inventory/lab.py")
    story = rollpin(lab, "log", *there, "--json").stdout.splitlines()
    events = [json.loads(line)["event"] for line in story]
    assert events == ["arm", "swap", "swapped", "commit", "committed"]
    said = rollpin(lab, "logs", *there, "--release", "1")
    assert (said.returncode, "The server is fired up and ready to roll!" in said.stdout) == (
        0,
        True,
    )
    none = rollpin(lab, "logs", *there, "--release", "7")
    assert (none.returncode, none.stdout) == (1, "")
    before = look(host)

    # what a person changed, with the command that puts it right
    host.run(["docker", "stop", "--time", "1", "glm53"])
    seen = status(lab, host)
    assert seen.returncode == 1, seen
    assert "TROUBLE: glm53 release 1 does not run: it is exited" in seen.stdout
    (command,) = (x.partition(": ")[2] for x in seen.stdout.splitlines() if "on the host: " in x)
    host.run(["sh", "-c", command.partition("on the host: ")[2]])
    assert status(lab, host).returncode == 0

    # a record that a full disk has cut
    host.run(["sh", "-c", f"cp -a {RECORD} {RECORD}.kept; head -c 100 {RECORD}.kept >{RECORD}"])
    seen = status(lab, host)
    assert seen.returncode == 1, seen
    assert f"{RECORD}: not JSON" in seen.stdout
    for what in ("deploys/glm53.py", "deploys/rollback.py"):
        run = deployer.run(what, on=here, data=QUICKLY)
        assert (run.status, run.words[host.name]) == (1, "refused"), run
        assert "the record of glm53 release 1 cannot be read" in run.verdicts[host.name].below
    host.run(["mv", f"{RECORD}.kept", RECORD])

    # a state directory that others may write: what lies there is run by root
    host.run(["chown", "deploy", STATE])
    run = deployer.run("deploys/rollback.py", on=here)
    assert (run.status, run.words[host.name]) == (1, "refused"), run
    assert f"{STATE} is not root's alone" in run.verdicts[host.name].below
    host.run(["chown", "root", STATE])

    # and one that is gone
    host.run(["mv", STATE, f"{STATE}.kept"])
    seen = status(lab, host)
    assert seen.returncode == 1, seen
    assert f"glm53 (running) is release 1 of glm53, and {STATE} has no record of it" in seen.stdout
    run = deployer.run(on=here, data=QUICKLY)
    assert (run.status, run.words[host.name]) == (1, "refused"), run
    assert f"{STATE} has no record of it" in run.verdicts[host.name].below
    host.run(["sh", "-c", f"rm -rf {STATE}; mv {STATE}.kept {STATE}"])

    after = look(host)
    assert after.standing() == before.standing()
    assert deployer.run(on=here, data=QUICKLY).words == {host.name: "unchanged"}
    # the way back was not hurt, and a state directory on another disk is as good
    host.run(["sh", "-c", f"mv {STATE} /data/state && ln -s /data/state {STATE}"])
    run = deployer.run("deploys/rollback.py", on=here)
    host.run(["sh", "-c", f"rm {STATE} && mv /data/state {STATE}"])
    assert run.words == {host.name: "live"}, run
    assert generation(host)


def test_a_run_that_chose_no_host_does_not_end_well(lab: Lab, deployer: Deployer) -> None:
    run = deployer.run(on=["nobody"])
    assert run.status == 1, run
    assert "no host was chosen, nothing was done" in str(run)


def test_dry_ends_with_1_where_it_shows_a_refusal(host: Host, deployer: Deployer) -> None:
    run = deployer.run(on=[host.name], data={"rollpin_settel": "20s"}, flags=["--dry"])
    assert run.status == 1, run
    assert "rollpin_settel: this name is not known; did you mean rollpin_settle?" in str(run)
    blind = deployer.run(on=[host.name], data=QUICKLY, flags=["--dry", "-y"])
    assert blind.status == 1, blind
    assert "with -y, pyinfra --dry looks at nothing" in str(blind)
