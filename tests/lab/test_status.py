"""`rollpin status` after what people and crashes do to a host; and the commands that it gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rollpin.lab import furnish, images
from rollpin.lab.host import Host
from rollpin.lab.state import Lab
from tests.lab.deploying import QUICK, QUICKLY, ROOT, STATE, Deployer

pytestmark = pytest.mark.slow

ROLLPIN = str(Path(sys.executable).with_name("rollpin"))


def status(host: Host, *flags: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [ROLLPIN, "status", "inventory/lab.py", "--limit", host.name, "--json", *flags],
        cwd=ROOT,
        env={**os.environ, "ROLLPIN_LAB": host.lab.name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (told,) = json.loads(done.stdout)
    return done.returncode, told


def troubled(host: Host, what: str, *flags: str) -> str:
    """The one trouble that is told, which must say `what`; its command."""
    rc, told = status(host, *flags)
    troubles = [t for t in told["troubles"] if not t["minor"]]
    assert rc == 1, told
    assert len(troubles) == 1, troubles
    assert what in troubles[0]["what"]
    return str(troubles[0]["do"])


def noted(host: Host, what: str, *flags: str) -> str:
    """The same for what is no fault."""
    rc, told = status(host, *flags)
    assert rc == 0, told
    (note,) = told["troubles"]
    assert what in note["what"]
    return str(note["do"])


def mended(host: Host, what: str, *flags: str) -> None:
    """Its command puts it right: it is pasted on the host."""
    host.run(troubled(host, what, *flags), timeout=120)
    assert [t for t in status(host, "--no-health")[1]["troubles"] if not t["minor"]] == []


def test_what_people_do_is_told_and_mended_by_the_command_that_is_told(
    host: Host, deployer: Deployer
) -> None:
    assert deployer.run(on=[host.name], data=QUICKLY).status == 0
    rc, told = status(host)
    assert rc == 0, told
    assert told["services"][0]["health"] == "good"
    assert told["troubles"] == []
    assert status(host, "--no-health")[1]["services"][0]["health"] == ""

    host.run(["docker", "update", "--restart", "no", "glm53"])
    mended(host, "has restart policy no, not unless-stopped")
    host.run(["docker", "rename", "glm53", "old"])
    mended(host, "was renamed: glm53 is called old")
    host.run(["docker", "rename", "glm53", "old"])
    host.run("docker create --name glm53 $(docker inspect --format '{{.Image}}' old) true")
    mended(host, "bears its name", "--no-health")
    host.run("docker rm $(docker ps -aq --filter name=glm53. --filter status=created)")
    host.run(["docker", "pause", "glm53"])
    mended(host, "is paused")
    host.run(["docker", "update", "--cpu-shares", "512", "glm53"])
    assert "CpuShares=512" in host.run(troubled(host, "was updated: CpuShares is 512")).stdout
    host.run(["docker", "update", "--cpu-shares", "0", "glm53"], check=False)

    # what it displaced
    host.run(["docker", "update", "--restart", "always", "glm53-pp4"])
    shares = "was updated"  # docker cannot take that back
    told = status(host, "--no-health")[1]
    (again,) = [t for t in told["troubles"] if shares not in t["what"]]
    assert "may rise at the next boot" in again["what"]
    host.run(again["do"])
    host.run("docker rm glm53-pp4")
    told = status(host, "--no-health")[1]
    (again,) = [t for t in told["troubles"] if shares not in t["what"]]
    assert "is gone from this engine" in again["what"]
    host.run(again["do"], timeout=120)
    told = status(host, "--no-health")[1]
    assert [t for t in told["troubles"] if shares not in t["what"]] == []


def test_what_is_restarted_moved_or_replaced(lab: Lab, cdi_host: Host, deployer: Deployer) -> None:
    host = cdi_host
    assert deployer.run(on=[host.name], data=QUICKLY).status == 0
    latest = lab.images["latest"]
    images.move_tag(lab, "latest", images.NIGHTLY)
    try:
        shown = host.run(noted(host, "the tag of glm53 release 1 moved")).stdout
        assert latest in shown
    finally:
        images.move_tag(lab, "latest", latest)

    host.run(["docker", "restart", "glm53"])
    furnish.wait_healthy(host)
    assert "token usage" in host.run(noted(host, "was restarted after its commit")).stderr
    host.run(["docker", "stop", "glm53"])
    mended(host, "does not run: it is exited", "--no-health")
    furnish.wait_healthy(host)

    host.run(["docker", "rm", "-f", "glm53"])
    host.run(
        ["docker", "run", "-d", "--name", "glm53", "--entrypoint", "sleep", latest_of(host), "99"]
    )
    host.run(troubled(host, "was replaced: its container"), timeout=180)
    furnish.wait_healthy(host)
    names = host.run("docker ps --format '{{.Names}}'").stdout.split()
    assert names == ["glm53-pp4"]
    rc, told = status(host)
    assert (rc, told["troubles"]) == (0, [])


def latest_of(host: Host) -> str:
    return host.run("docker image ls --format '{{.ID}}' | head -n 1").stdout.strip()


def test_an_engine_that_crashes_is_told(containerd_host: Host, deployer: Deployer) -> None:
    host = containerd_host
    env = {**QUICK, "ROLLPIN_LAB_FAULT": "crash-after:4"}
    done = deployer.run(on=[host.name], data={"rollpin_settle": "0.2s", "rollpin_env": env})
    assert done.status == 0, done
    host.run(
        "n=0; until [ $(docker inspect --format '{{.RestartCount}}' glm53) -gt 0 ];"
        " do n=$((n + 1)); [ $n -lt 600 ] || exit 9; sleep 0.1; done",
        timeout=90,
    )
    rc, told = status(host)
    assert rc == 1
    assert any("glm53 release 1 " in t["what"] for t in told["troubles"])
    host.run(["docker", "update", "--restart", "no", "glm53"])
    host.run(["docker", "stop", "glm53"])
    told = status(host)[1]
    assert any("does not run" in t["what"] for t in told["troubles"])
    host.run(["sh", f"{STATE}/RESTORE-glm53"], timeout=120)


def test_an_engine_that_hangs_is_not_good(containerd_host: Host, deployer: Deployer) -> None:
    host = containerd_host
    env = {**QUICK, "ROLLPIN_LAB_FAULT": "hang-after:4"}
    done = deployer.run(on=[host.name], data={"rollpin_settle": "0.2s", "rollpin_env": env})
    assert done.status == 0, done
    host.run(
        "n=0; until [ $(curl -s -m 60 -o /dev/null -w '%{http_code}' 127.0.0.1:30000/health)"
        " = 503 ]; do n=$((n + 1)); [ $n -lt 60 ] || exit 9; sleep 0.1; done",
        timeout=90,
    )
    assert troubled(host, "is not good: ").startswith("sudo docker logs --tail 100 ")
