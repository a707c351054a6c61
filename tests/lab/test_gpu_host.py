"""The role gpu_host on a real host: twice is once, and dockerd is never restarted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollpin.lab.host import Host, User

ROOT = Path(__file__).parents[2]
PYINFRA = str(Path(sys.executable).with_name("pyinfra"))
DAEMON_JSON = "/etc/docker/daemon.json"
DATA = {"users": {"ops": {"docker": True, "sudo": True, "public_keys": ["ssh-ed25519 AAAA ops"]}}}

pytestmark = pytest.mark.lab


def _deploy(host: Host, data: object, user: User = "root") -> tuple[int, str]:
    argv = [PYINFRA, "-y", "inventory/lab.py", "deploys/gpu_host.py", "--limit", host.name]
    done = subprocess.run(
        [*argv, "--data", f"gpu_host={json.dumps(data)}"],
        cwd=ROOT,
        env={**os.environ, "ROLLPIN_LAB": host.lab.name, "ROLLPIN_LAB_USER": user},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _dockerd(host: Host) -> str:
    return host.run(["systemctl", "show", "-P", "MainPID", "docker.service"]).stdout


@pytest.fixture
def bare(host: Host) -> Iterator[Host]:
    """A host without log limits and the user ops; it is without them afterwards too."""
    config = json.loads(host.run(["cat", DAEMON_JSON]).stdout)
    config.pop("log-opts", None)
    _clear(host, json.dumps(config, indent=2))
    yield host
    _clear(host, json.dumps(config, indent=2))


def _clear(host: Host, daemon_json: str) -> None:
    host.run(f"cat > {DAEMON_JSON}", stdin=daemon_json)
    host.run("systemctl start docker.service")
    host.run("rm -f /etc/sudoers.d/rollpin-ops; userdel -rf ops", check=False)


@pytest.mark.parametrize("user", ["root", "deploy"])
def test_twice_is_once(bare: Host, user: User) -> None:
    before = json.loads(bare.run(["cat", DAEMON_JSON]).stdout)
    engine = _dockerd(bare)
    status, said = _deploy(bare, DATA, user)
    assert status == 0, said
    assert "after the next engine restart" in said
    after = json.loads(bare.run(["cat", DAEMON_JSON]).stdout)
    assert after == {**before, "log-opts": {"max-size": "100m", "max-file": "5"}}
    assert bare.run("sudo -u ops sudo -n id -un").stdout == "root\n"
    assert "docker" in bare.run(["id", "-Gn", "ops"]).stdout.split()
    keys = bare.run("cat ~ops/.ssh/authorized_keys").stdout
    assert keys.strip() == "ssh-ed25519 AAAA ops"

    look = f"stat -c '%i %Y %Z' {DAEMON_JSON} /etc/sudoers.d/rollpin-ops /etc/passwd ~ops/.ssh/*"
    seen = bare.run(look).stdout
    status, said = _deploy(bare, DATA, user)
    assert status == 0, said
    assert re.search(r"Grand total +5 +- +- +5 ", said), said
    assert bare.run(look).stdout == seen
    assert _dockerd(bare) == engine


def test_no_engine_is_refused_and_not_started(bare: Host) -> None:
    bare.run(["systemctl", "stop", "docker.service", "docker.socket"])
    status, said = _deploy(bare, {})
    assert status == 1
    assert "refused: no docker engine answers" in said
    active = bare.run(["systemctl", "is-active", "docker.service"], check=False).stdout
    assert active.strip() in ("inactive", "failed")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"data_disk": "/srv/x"}, "/srv/x lies on the root disk"),
        ({"data_disk": "/run/noexec/x"}, "is mounted noexec"),
        ({"user": {}}, "gpu_host: user is not known (nearest: users)"),
    ],
)
def test_refusals_touch_nothing(bare: Host, data: object, why: str) -> None:
    bare.run("mkdir -p /run/noexec && mount -t tmpfs -o noexec none /run/noexec")
    try:
        status, said = _deploy(bare, data)
        assert bare.run(["ls", "-A", "/run/noexec"]).stdout == ""
    finally:
        bare.run("umount /run/noexec; rmdir /run/noexec", check=False)
    assert status == 1
    assert why in said
    assert bare.run("ls -d /srv/x", check=False).status != 0


def test_a_broken_daemon_json_is_left_alone(bare: Host) -> None:
    bare.run(f"cat > {DAEMON_JSON}", stdin="{ not json\n")
    status, said = _deploy(bare, {})
    assert status == 1
    assert "it is not JSON" in said
    assert bare.run(["cat", DAEMON_JSON]).stdout == "{ not json\n"
