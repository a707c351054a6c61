"""`pyinfra inventory/lab.py deploys/glm53.py`, as a person runs it: what it does.

The first deploys (as root, as deploy) are made once and looked at by many tests; those change
nothing. What is refused is in test_refusals.py.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from rollpin.lab import furnish, images, registry
from rollpin.lab.host import Host
from rollpin.lab.state import Lab
from tests.lab import deploying
from tests.lab.deploying import (
    LATEST,
    QUICK,
    QUICKLY,
    RELEASES,
    STATE,
    Deployer,
    Run,
    Snapshot,
    differences,
    fresh,
    generation,
    journal,
    link,
    look,
    look_at,
    release_json,
)

SECRET = "hunter2-0b9f6c"
NAMES = ["lab1", "lab2", "lab3"]


# --- the first deploy ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """A deploy on fresh hosts, with what stood before and after."""

    hosts: list[Host]
    before: dict[str, Snapshot]
    dry: Run
    after_dry: dict[str, Snapshot]
    run: Run
    after: dict[str, Snapshot]


@pytest.fixture(scope="module")
def first(lab: Lab, all_hosts: list[Host], deployer: Deployer) -> Story:
    """As root: shown by --dry, then run exactly as shown, with a plan bound for every host."""
    hosts = fresh(all_hosts[:3])
    before = look_at(hosts)
    dry = deployer.run(flags=["--dry"], data=QUICKLY)
    after_dry = look_at(hosts)
    bound = ",".join(f"{name}:{dry.plan_hash(name)}" for name in before)
    run = deployer.run(data={**QUICKLY, "plan": bound})
    return Story(hosts, before, dry, after_dry, run, look_at(hosts))


def test_dry_shows_the_plan_and_changes_nothing(first: Story, lab: Lab) -> None:
    assert first.dry.status == 0, first.dry
    for host in first.hosts:
        text = first.dry.plan(host.name)
        assert text.startswith(f"{host.name}: glm53: release 1 (now: none)")
        assert f"pinned to {lab.images['latest']} (by the inventory's mirror), to be pulled" in text
        assert "  stops glm53-pp4 (displaced, with a restore note): is told to listen on" in text
        assert ("  stops dsv4_scan (displaced" in text) == (host.name == "lab1")
        assert "  starts glm53 (as glm53.r1 until it serves)" in text
        assert "idle condition of dsv4_scan shortened from 45 min to 2 s" in text
        assert differences(first.before[host.name], first.after_dry[host.name]) == {}


def test_verdict_line_says_what_matters(first: Story, lab: Lab) -> None:
    assert first.run.status == 0, first.run
    assert first.run.words == dict.fromkeys(NAMES, "live"), first.run
    for host in first.hosts:
        verdict = first.run.verdicts[host.name]
        told = re.fullmatch(
            rf"{host.name}: glm53 live, release 1, {lab.images['latest']}, outage ([\d.]+) s,"
            rf" note ({RELEASES}/1/NOTE.md)",
            verdict.line,
        )
        assert told, verdict.line
        assert float(told[1]) > 0
        assert "glm53 release 1" in host.run(["cat", told[2]]).stdout


def test_warning_names_the_cache_that_is_not_written(first: Story) -> None:
    """This engine never writes FlashInfer's JIT there; what it does write is not warned of."""
    for host in first.hosts:
        warned = [w for w in first.run.verdicts[host.name].below.splitlines() if "cache" in w]
        assert len(warned) == 1, warned
        assert "/data/glm53_exp/fi_jit_cache:/root/.cache/flashinfer" in warned[0]
        assert host.run("find /data/glm53_exp/sglang_cache -type f | wc -l").stdout != "0\n"


def test_container_is_what_the_profile_says(first: Story, lab: Lab) -> None:
    for host in first.hosts:
        found = host.container("glm53")
        assert found is not None
        config, given = found["Config"], found["HostConfig"]
        assert config["Image"] == f"{lab.registry}/lmsysorg/sglang@{lab.images['latest']}"
        # one argument, with its blank and its quotes
        assert config["Cmd"][-2:] == ["--json-model-override-args", '{"index_topk_freq": 4}']
        assert config["Cmd"][:3] == ["python3", "-m", "sglang.launch_server"]
        assert {k: v for k, v in config["Labels"].items() if k.startswith("rollpin.")} == {
            "rollpin.service": "glm53",
            "rollpin.release": "1",
            "rollpin.profile": LATEST.stem,
            "rollpin.fingerprint": release_json(host, 1)["fingerprint"],
        }
        assert given["RestartPolicy"]["Name"] == "unless-stopped"
        assert given["NetworkMode"] == "host"
        assert (given["ShmSize"], given["Init"]) == (32 << 30, True)
        assert "SGLANG_CACHE_DIR=/root/.cache/sglang" in config["Env"]
        assert generation(host) == "42"


def test_displaced_containers_are_stopped_for_good(first: Story) -> None:
    for host in first.hosts:
        after = first.after[host.name].containers
        for ident, (name, *_) in first.before[host.name].containers.items():
            # its own id and name; nothing starts it again
            assert after[ident][:3] == [name, "exited", "no"]
        assert len(after) == len(first.before[host.name].containers) + 1


def test_restore_notes_tell_who_when_why_what_and_one_command(first: Story) -> None:
    for host in first.hosts:
        records = {c["Id"]: c for c in host.containers()}
        notes = host.run(f"ls {STATE}/displaced").stdout.split()
        assert notes == sorted(f"{i}.md" for i in first.before[host.name].containers)
        for ident, was in first.before[host.name].containers.items():
            path = f"{STATE}/displaced/{ident}.md"
            # whoever logs in can read it
            text = host.run(["cat", path], user="deploy").stdout
            for words in (
                f"{was[0]} was displaced by glm53 release 1",
                "- who: ",
                "- when: 20",
                "- why: it ",
                f"id {ident}",
                f"- image: {was[3]}",
                f"- restart policy: {was[2]} ",
                "- GPUs: all",
                "- it was: running",
            ):
                assert words in text
            ports = "30000" if was[0] == furnish.PRODUCTION else "none"
            assert f"- ports: {ports}\n" in text
            # the command is a file that exists, and nothing of the environment is in the note
            script = re.search(rf"sudo sh ({RELEASES}/1/giveback-{ident[:12]}\.sh)", text)
            assert script
            host.run(["sh", "-n", script[1]])
            for variable in records[ident]["Config"]["Env"]:
                assert variable not in text


def test_the_way_back_is_linked(first: Story) -> None:
    for host in first.hosts:
        assert link(host) == f"{RELEASES}/1/restore.sh"
        host.run(["sh", "-n", f"{STATE}/RESTORE-glm53"])


def test_journal_tells_the_story_in_order(first: Story) -> None:
    for host in first.hosts:
        story = journal(host)
        assert [x["event"] for x in story] == ["arm", "swap", "swapped", "commit", "committed"]
        assert {(x["service"], x["release"]) for x in story} == {("glm53", 1)}
        assert len({x["transaction"] for x in story}) == 1
        assert [x["uptime"] for x in story] == sorted(x["uptime"] for x in story)
        ident = first.after[host.name].named("glm53")[0]
        # the words of the plan, with the id that docker gave
        assert f"docker start {ident}" in story[0]["detail"]


def test_private_files_are_private(first: Story) -> None:
    for host in first.hosts:
        files = first.after[host.name].files
        for name in ("release.json", "records.json", "env"):
            assert files[f"{RELEASES}/1/{name}"][0] == "0o600"
        for path in (STATE, f"{STATE}/glm53", f"{STATE}/displaced", f"{RELEASES}/1"):
            assert files[path][0] == "0o755"
        said = host.run(["cat", f"{RELEASES}/1/records.json"], user="deploy", check=False)
        assert said.status != 0


def test_nothing_watches_after_the_commit(first: Story) -> None:
    for host in first.hosts:
        after = first.after[host.name]
        assert (after.units, after.unit_files, after.ballast) == ([], [], [])
        assert [f for f in after.files if f.startswith("/run/rollpin/")] == []
        assert not [p for p in after.processes if "rollpin" in p]
        assert after.temporary == first.before[host.name].temporary


def test_what_arrived_is_recorded(first: Story, lab: Lab) -> None:
    """An image's Id is the config's digest on classic stores, the index's with containerd."""
    _, _, index = registry.ask(lab, "GET", f"manifests/{lab.images['latest']}")
    platform = json.loads(index)["manifests"][0]["digest"]
    _, _, manifest = registry.ask(lab, "GET", f"manifests/{platform}")
    config = json.loads(manifest)["config"]["digest"]
    for host in first.hosts:
        image = release_json(host, 1)["image"]
        assert image["digest"] == lab.images["latest"]
        assert (image["tag"], image["source"]) == ("latest", "inventory")
        expected = (
            ("containerd", lab.images["latest"]) if host.name == "lab3" else ("classic", config)
        )
        assert (image["store"], image["id"]) == expected
        tags = host.run(["docker", "image", "inspect", "-f", "{{.Id}}", "rollpin/glm53:1"])
        assert tags.stdout.strip() == expected[1]


def test_run_again_changes_nothing(first: Story, lab: Lab, deployer: Deployer) -> None:
    """No docker event, no inode, no request: the registry is not even there."""
    since = {h.name: h.run(["date", "+%s.%N"]).stdout.strip() for h in first.hosts}
    before = look_at(first.hosts)
    registry.down(lab)
    try:
        run = deployer.run(data=QUICKLY)
    finally:
        registry.up(lab)
    assert run.status == 0, run
    assert run.words == dict.fromkeys(NAMES, "unchanged"), run
    after = look_at(first.hosts)
    for host in first.hosts:
        assert f"release 1, {lab.images['latest']}, no outage" in run.verdicts[host.name].line
        until = host.run(["date", "+%s.%N"]).stdout.strip()
        events = ["docker", "events", "--since", since[host.name], "--until", until]
        assert host.run(events).stdout == ""
        assert differences(before[host.name], after[host.name]) == {}


def test_displaced_stays_away_while_there_is_no_room(first: Story, deployer: Deployer) -> None:
    before = look_at(first.hosts)
    run = deployer.run("deploys/restore_displaced.py", data={"container": furnish.PRODUCTION})
    assert run.status == 1, run
    assert run.words == dict.fromkeys(NAMES, "refused"), run
    for host in first.hosts:
        said = f"there is no room for {furnish.PRODUCTION}: glm53 "
        assert said in run.verdicts[host.name].below
        assert differences(before[host.name], look(host)) == {}


# --- as the user that needs sudo, with a secret --------------------------------------------------

# Looks at every command line on the host until it is told to stop. The word is not on its own.
WATCH = r"""
import glob, os, time
word, seen, rounds = WORD.encode(), set(), 0
while not os.path.exists("/run/lab-watch-end"):
    rounds += 1
    time.sleep(0.01)
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            line = open(path, "rb").read()
        except OSError:
            continue
        if word in line:
            seen.add(line)
os.remove("/run/lab-watch-end")
print(rounds, sorted(seen))
"""


@dataclass(frozen=True)
class Secretly:
    """A deploy as the user `deploy`; `again` makes another of the same profile."""

    host: Host
    before: Snapshot
    run: Run
    after: Snapshot
    watched: str
    again: Callable[..., Run]


@pytest.fixture(scope="module")
def as_deploy(
    all_hosts: list[Host], deployer: Deployer, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Secretly:
    """As deploy, through sudo, on the containerd store. The profile names a tag and no digest, and
    a secret whose value is in a file of the controller.
    """
    folder = tmp_path_factory.mktemp("secret")
    (folder / "token").write_text(f"{SECRET}\n")
    (pin,) = re.findall(r"^PIN=.*\n", LATEST.read_text(), re.MULTILINE)
    secret = f"GPUS=all\nSECRET_HF_TOKEN={folder}/token\n"
    profile = deploying.profile(folder, (pin, ""), ("GPUS=all\n", secret), name="by_tag")
    # the mirror says where, and not which
    mirror = {registry.REPOSITORY: {"repository": f"{lab.registry}/{registry.REPOSITORY}"}}
    host = all_hosts[2]

    def run(**more: Any) -> Run:
        data = {**QUICKLY, "rollpin_mirrors": mirror, **more.pop("data", {})}
        return deployer.run(on=[host.name], user="deploy", profile=profile, data=data, **more)

    host.reset()
    before = look(host)
    watcher = subprocess.Popen(
        [*host.ssh(), "python3", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert watcher.stdin is not None
    watcher.stdin.write(WATCH.replace("WORD", repr(SECRET)))
    watcher.stdin.close()
    watcher.stdin = None
    try:
        first = run()
    finally:
        host.run(["touch", "/run/lab-watch-end"])
        watched = watcher.communicate(timeout=30)[0]
    return Secretly(host, before, first, look(host), watched, run)


def test_user_with_sudo_deploys_alike(as_deploy: Secretly) -> None:
    assert as_deploy.run.status == 0, as_deploy.run
    host, after = as_deploy.host, as_deploy.after
    assert as_deploy.run.words == {host.name: "live"}, as_deploy.run
    assert after.named("glm53")[1][1:3] == ["running", "unless-stopped"]
    for ident in as_deploy.before.containers:
        assert after.containers[ident][1:3] == ["exited", "no"]
    assert generation(host) == "42"
    assert (after.units, after.unit_files, after.ballast) == ([], [], [])
    # pyinfra's own or ours, nothing stays in a home or in /tmp
    assert after.temporary == as_deploy.before.temporary
    assert host.run(f"find {STATE} /run/rollpin ! -user root").stdout == ""


def test_secret_reaches_the_container_and_nobody_else(as_deploy: Secretly) -> None:
    host = as_deploy.host
    found = host.container("glm53")
    assert found is not None
    assert f"HF_TOKEN={SECRET}" in found["Config"]["Env"]
    places = f"{STATE} /run/rollpin /tmp /var/tmp /home /root /var/log"
    holding = host.run(f"grep -rl {SECRET} {places}", check=False).stdout.split()
    assert holding == [f"{RELEASES}/1/env"]
    assert host.run(["stat", "-c", "%a %U", f"{RELEASES}/1/env"]).stdout == "600 root\n"
    # what systemd was asked to run, and what sudo wrote down (my own grep is there too)
    said = host.run("journalctl --no-pager -q", check=False).stdout
    assert [x for x in said.splitlines() if SECRET in x and "grep -rl" not in x] == []
    rounds, _, seen = as_deploy.watched.partition(" ")
    assert int(rounds) > 10
    assert seen.strip() == "[]"
    assert SECRET not in as_deploy.run.out + as_deploy.run.err
    assert "--env HF_TOKEN " in as_deploy.run.plan(host.name)


def test_tag_is_resolved_once_and_kept(as_deploy: Secretly, lab: Lab) -> None:
    host, digest = as_deploy.host, lab.images["latest"]
    said = "(the tag was resolved just now and is recorded with the release)"
    assert f"sglang:latest pinned to {digest} {said}" in as_deploy.run.plan(host.name)
    recorded = release_json(host, 1)["image"]
    assert (recorded["digest"], recorded["source"]) == (digest, "resolved")
    assert as_deploy.after.named("glm53")[1][3].endswith(f"sglang@{digest}")

    before = look(host)
    images.move_tag(lab, images.MOVING, images.NIGHTLY)
    try:
        again = as_deploy.again()
        # asked only when something would change: then it is said, and the pin stays
        other = {"rollpin_env": {**QUICK, "OTHER": "1"}}
        dry = as_deploy.again(data=other, flags=["--dry"])
    finally:
        images.move_tag(lab, images.MOVING, digest)
    kept = f"pinned to {digest} (as release 1 recorded it)"
    assert again.words == {host.name: "unchanged"}, again
    assert kept in again.plan(host.name)
    assert f"{kept}, already on the host" in dry.plan(host.name)
    moved = f"sglang:latest points to {lab.images[images.NIGHTLY]} now; the release keeps its pin"
    assert moved in dry.plan(host.name)
    assert differences(before, look(host)) == {}
