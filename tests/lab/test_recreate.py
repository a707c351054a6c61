"""A container that somebody removed comes back from its record: the same, but for what is named."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable
from typing import Any

import pytest

from rollpin import recreate
from rollpin.lab import furnish
from rollpin.lab.host import Host

from .controller import (
    LINK,
    Controller,
    as_it_was,
    await_look,
    await_on_host,
    by_hand,
    furnished,
    gate,
    journal,
    look,
    release_file,
    side_by_side,
)

# Every option here must be in `docker inspect` of the container that is made again.
MATRIX: dict[str, list[str]] = {
    "plain": [],
    "process": [
        *("--user", "1000:1000", "--workdir", "/tmp", "--hostname", "box", "--stop-signal", "INT"),
        *("--stop-timeout", "7", "--tty", "--interactive", "--init", "--label", "a=b c"),
        *("--env", "PLAIN=a b", "--env", "TRICKY=$HOME '\"` #", "--env", "EMPTY="),
        *("--env", "LINES=one\ntwo", "--entrypoint", "sleep"),
    ],
    "limits": [
        *("--memory", "256m", "--memory-swap", "512m", "--cpus", "0.5", "--cpu-shares", "512"),
        *("--cpuset-cpus", "0", "--pids-limit", "99", "--shm-size", "128m", "--oom-score-adj"),
        *("100", "--ulimit", "nofile=1000:2000", "--ulimit", "memlock=-1:-1"),
    ],
    "rights": [
        *("--cap-add", "SYS_NICE", "--cap-drop", "MKNOD", "--security-opt", "no-new-privileges"),
        *("--read-only", "--tmpfs", "/run:rw,size=1m", "--group-add", "44", "--ipc", "host"),
        *("--sysctl", "net.ipv4.ip_unprivileged_port_start=0"),
    ],
    "gone": ["--rm"],
    "privileged": ["--privileged", "--pid", "host", "--uts", "host", "--network", "host"],
    "mounts": [
        *("--volume", "/srv:/data:ro", "--volume", "named:/named", "--volume", "/anonymous"),
        *("--mount", "type=bind,source=/srv,target=/bound,readonly"),
        *("--mount", "type=tmpfs,target=/fast,tmpfs-size=1048576,tmpfs-mode=1777"),
        *("--mount", "type=volume,target=/also"),
    ],
    "network": [
        *("--publish", "127.0.0.1:18080:80", "--publish", "18443:443/udp", "--expose", "99"),
        *("--dns", "198.18.0.9", "--dns-search", "lab.test", "--add-host", "far:198.18.0.7"),
        *("--network", "made", "--network-alias", "other", "--ip", "198.18.99.7"),
    ],
    "health": [
        *("--health-cmd", "true || false", "--health-interval", "7s", "--health-retries", "4"),
        *("--health-timeout", "2s", "--health-start-period", "9s"),
    ],
    "log": ["--log-driver", "json-file", "--log-opt", "max-size=1m", "--log-opt", "max-file=2"],
    "device": ["--device", "/dev/null:/dev/nothing:rw", "--device-cgroup-rule", "c 1:3 rwm"],
}
# What docker itself derives from the id, from the moment or from the terminal that asked.
_DERIVED = {"AttachStdin", "AttachStdout", "AttachStderr", "StdinOnce", "ConsoleSize"}


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    config = {k: v for k, v in record["Config"].items() if k not in _DERIVED}
    if record["Id"].startswith(config.get("Hostname") or "-"):
        config["Hostname"] = "its id"
    config["Env"] = sorted(config.get("Env") or ())
    config["Labels"] = {
        k: v for k, v in (config.get("Labels") or {}).items() if not k.startswith("rollpin.was.")
    }
    # An anonymous volume is asked for by its name the second time.
    config.pop("Volumes", None)
    host = {k: v for k, v in record["HostConfig"].items() if k not in _DERIVED}
    host.pop("Binds", None)
    host["Mounts"] = [
        m for m in host.get("Mounts") or () if m.get("Source") or m["Type"] == "tmpfs"
    ]
    mounts = sorted(
        (m["Type"], m.get("Name") or m.get("Source"), m["Destination"], m["RW"])
        for m in record["Mounts"]
    )
    networks = {
        name: sorted(a for a in e.get("Aliases") or () if not record["Id"].startswith(a))
        for name, e in record["NetworkSettings"]["Networks"].items()
    }
    return {
        "Path": record["Path"],
        "Args": record["Args"],
        "Image": record["Image"],
        "Config": {k: v for k, v in config.items() if v not in (None, [], {}, "")},
        "HostConfig": {k: v for k, v in host.items() if v not in (None, [], {}, "")},
        "Mounts": mounts,
        "Networks": networks,
    }


def _inspect(host: Host, kind: str, name: str) -> dict[str, Any]:
    answer = json.loads(host.run(["docker", "inspect", "--type", kind, name]).stdout)
    return dict(answer[0])


def _made_twice(host: Host, image: str) -> None:
    host.run("docker network create --subnet 198.18.99.0/24 made >/dev/null")
    host.run("mkdir -p /srv")
    for name, options in MATRIX.items():
        words = [] if name == "plain" else ["30"]
        host.run(["docker", "create", "--name", name, *options, image, *words])
        first = _inspect(host, "container", name)
        again = recreate.recreation(first, _inspect(host, "image", image))
        assert again.losses == ("its log",), (name, again.losses)
        host.run("docker rm " + name)
        host.run("cat >/root/again.env", stdin="".join(f"{x}\n" for x in again.env))
        before, after = recreate.command(again, name, "/root/again.env")
        exports = "".join(f"export {k}={shlex.quote(v)}; " for k, v in again.exported.items())
        host.run(f"{exports}{shlex.join(before)} {again.image} {shlex.join(after)}")
        second = _inspect(host, "container", name)
        assert _comparable(second) == _comparable(first), (host.name, name)
        host.run("docker rm " + name)
    host.run(
        "rm /root/again.env; docker network rm made; docker volume prune --force --all", check=False
    )


def test_made_again_it_is_the_same(all_hosts: list[Host], image: str) -> None:
    """Every engine's options, through `docker inspect` and back."""
    for host in all_hosts[:3]:
        furnished(host)
    side_by_side(all_hosts[:3], lambda host: _made_twice(host, image))
    side_by_side(all_hosts[:3], lambda host: host.reset())


# --- stories --------------------------------------------------------------------------------------

Story = Callable[[Host], None]


def _container(host: Host, name: str) -> str:
    return host.run(["docker", "inspect", "--format", "{{.Id}}", name]).stdout.strip()


def _as_if_nothing_happened(host: Host, before: list[str], swapped: dict[str, str]) -> None:
    """As before, but that these containers have another id."""
    now = {old: _container(host, name) for name, old in swapped.items()}
    assert all(old != new for old, new in now.items())
    wanted = [" ".join(now.get(w, w) for w in line.split(" ")) for line in before]
    await_look(host, sorted(wanted))
    furnish.wait_healthy(host)


def _events(host: Host) -> list[str]:
    return [str(e["event"]) for e in journal(host)]


def removed_in_the_swap(host: Host) -> None:
    """`docker rm` of production while nobody serves; the run is told to end."""
    before = furnished(host)
    old = _container(host, "glm53-pp4")
    with gate(host, " start ") as held, Controller(host, lease="10m") as run:
        held.reached()
        host.run(["docker", "rm", old])
        run.send(signal.SIGTERM)
        held.open()
        assert run.end(120) == 1
        assert run.word() == "restored"
        assert f"glm53-pp4 ({old}) was gone from this engine" in run.output
        assert "lost: what it wrote into itself" in run.output
    _as_if_nothing_happened(host, before, {"glm53-pp4": old})
    assert "recreated" in _events(host)
    with Controller(host) as run:
        assert run.end() == 0
        assert run.word() == "live"


def pruned_in_the_swap(host: Host) -> None:
    """`docker system prune -af` takes the stopped containers and their images."""
    before = furnished(host)
    names = [x.split()[2].lstrip("/") for x in before if x.startswith("container ")]
    old = {name: _container(host, name) for name in names}
    with gate(host, " start ") as held, Controller(host, lease="10m") as run:
        held.reached()
        host.run(["docker", "system", "prune", "--all", "--force"], timeout=120)
        run.send(signal.SIGTERM)
        held.open()
        assert run.end(180) == 1
        assert run.word() == "restored"
    _as_if_nothing_happened(host, before, old)


def removed_and_restored_by_the_guard(host: Host) -> None:
    """Nobody is there to pull with credentials or to say it: the journal tells."""
    before = furnished(host)
    old = _container(host, "glm53-pp4")
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:600"}) as run:
        run.wait_for("] waiting for")
        host.run(["docker", "rm", old])
        run.kill()
    await_on_host(host, release_file("restored"), 60)
    _as_if_nothing_happened(host, before, {"glm53-pp4": old})
    assert _events(host)[-2:] == ["recreated", "restored"]


def rolled_back_to_a_removed_release(host: Host) -> None:
    furnished(host)
    for _ in range(2):
        with Controller(host) as run:
            assert run.end() == 0
    one = _container(host, "glm53.r1")
    host.run(["docker", "rm", one])
    with Controller(host, "rollback") as run:
        assert run.end(120) == 0
        assert "rolled back to release 1" in run.output
    now = _inspect(host, "container", "glm53")
    assert now["Id"] != one
    assert now["State"]["Status"] == "running"
    assert now["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert f"rollpin.was.{one}" in now["Config"]["Labels"]
    # and once more, to what stood before release 1, which is gone too
    production = _container(host, "glm53-pp4")
    host.run(["docker", "rm", production])
    with Controller(host, "rollback", to="0") as run:
        assert run.end(120) == 0
    again = _inspect(host, "container", "glm53-pp4")
    assert again["Id"] != production
    assert again["State"]["Status"] == "running"
    furnish.wait_healthy(host)


def two_are_kept(host: Host) -> None:
    """Of five releases the last two stay, stopped; the first is made again, its image pulled."""
    before = furnished(host)
    for _ in range(4):
        with Controller(host) as run:
            assert run.end() == 0
    names = host.run("docker ps -a --format '{{.Names}}'").stdout.split()
    # production is displaced: its note is its way back, and it is not ours to remove
    assert sorted(n for n in names if n.startswith("glm53")) == [
        "glm53", "glm53-pp4", "glm53.r2", "glm53.r3"
    ]  # fmt: skip
    tags = [x for x in look(host) if x.startswith("tag ")]
    assert tags == [f"tag rollpin/glm53:{n}" for n in (2, 3, 4)]
    with Controller(host, "rollback", to="1") as run:
        assert run.end(120) == 0
        assert "rolled back to release 1" in run.output
    assert _inspect(host, "container", "glm53")["State"]["Status"] == "running"
    with Controller(host, "rollback", to="0") as run:
        assert run.end(120) == 0
    containers = [x for x in look(host) if x.startswith("container ") and " running " in x]
    assert containers == [x for x in before if x.startswith("container ")]


def a_removed_one_is_given_back(host: Host) -> None:
    """The container that left room is given back, though somebody removed it."""
    before = furnished(host)
    displaced = "dsv4_scan" if any(" /dsv4_scan " in x for x in before) else "glm53-pp4"
    old = _container(host, displaced)
    with Controller(host) as run:
        assert run.end() == 0
    host.run(["docker", "rm", old])
    host.run(["docker", "stop", "glm53"])
    with Controller(host, "restore_displaced", containers=displaced) as run:
        assert run.end(120) == 0
    assert _container(host, displaced) != old
    assert _inspect(host, "container", displaced)["State"]["Status"] == "running"


def its_data_disk_is_not_mounted(host: Host) -> None:
    """Nothing is made again on an engine that is not the one these containers live in."""
    before = furnished(host)
    with Controller(host, engine={"ROLLPIN_LAB_FAULT": "slow:600"}, lease="10m") as run:
        run.wait_for("] waiting for")
        run.kill()
    stop, start = "systemctl stop docker.service docker.socket", "systemctl start docker.service"
    host.run(f"{stop}; mount -t tmpfs none /var/lib/docker && {start}", timeout=120)
    answer = host.run(["sh", LINK], check=False, timeout=120)
    assert answer.status == 4, answer
    assert "is the disk of /var/lib/docker mounted?" in answer.stdout
    assert host.run("docker ps -aq").stdout == ""
    assert _events(host)[-1] == "restore-failed"
    assert release_state(host) == "restoring"
    host.run(f"{stop}; umount /var/lib/docker && {start}", timeout=120)
    by_hand(host)
    as_it_was(host, before)


def release_state(host: Host) -> str:
    (line,) = [x for x in look(host) if x.startswith("release ")]
    return line.split()[-1]


STORIES: list[Story] = [
    removed_in_the_swap, two_are_kept, rolled_back_to_a_removed_release,
    pruned_in_the_swap, its_data_disk_is_not_mounted, removed_and_restored_by_the_guard,
    a_removed_one_is_given_back,
]  # fmt: skip


@pytest.mark.parametrize(
    "stories",
    [
        pytest.param(
            three, marks=[pytest.mark.slow] if n else [], id=", ".join(s.__name__ for s in three)
        )
        for n, three in enumerate([STORIES[:3], STORIES[3:6], STORIES[6:]])
    ],
)
def test_stories(all_hosts: list[Host], stories: list[Story]) -> None:
    side_by_side(all_hosts[: len(stories)], lambda host: stories[all_hosts.index(host)](host))
