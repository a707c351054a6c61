"""A release whose engine fails: what served before serves again, and nothing else is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollpin.lab import images, registry
from rollpin.lab.host import Host, User
from rollpin.lab.state import Lab
from tests.lab import deploying
from tests.lab.deploying import (
    LATEST,
    QUICK,
    RELEASES,
    Deployer,
    Run,
    Snapshot,
    generation,
    journal,
    left_over,
    link,
    look_at,
    side_by_side,
)

# One run hurts every host in its own way; `image` is an image with crash-load inside.
FAULTS = [
    {"lab1": "hang", "lab2": "freeze", "lab3": "never-ready"},
    {"lab1": "image", "lab2": "crash-after:0.5", "lab3": "wrong-model"},
    {"lab1": "ignore-sigterm,lie:garbage", "lab2": "lie:garbage", "lab3": "lie:500"},
]
# What the verdict says of each, beside the words that all of them share.
SAID = {
    "image": "RuntimeError: The size of tensor a",
    "crash-after:0.5": "",  # whichever check meets it first
    "hang": "not ready within 7 s: /health gives no answer",
    "freeze": "not ready within 7 s: /health gives no answer",
    "never-ready": "not ready within 7 s: /health answers 503",
    "lie:garbage": "generation: ",
    "ignore-sigterm,lie:garbage": "generation: ",
    "lie:500": "generation: status 500",
    "wrong-model": "says model ",
}


@pytest.fixture(scope="module")
def standing(all_hosts: list[Host]) -> list[Host]:
    """Production on every host, and `dsv4_scan` on the first; nothing of rollpin's."""
    side_by_side(Host.reset, all_hosts[:3])
    return all_hosts[:3]


@pytest.fixture
def before(standing: list[Host]) -> Iterator[dict[str, Snapshot]]:
    """The hosts as they stand. The next test gets them whole, whatever this one did to them."""
    found = look_at(standing)
    yield found
    after = look_at(standing)
    if hurt := [h for h in standing if left_over(found[h.name], after[h.name])]:
        side_by_side(Host.reset, hurt)


def patient(folder: Path) -> Path:
    """The recipe, with less patience for a failed engine that does not end."""
    return deploying.profile(folder, ("SERVICE=glm53\n", "SERVICE=glm53\nFAILED_STOP_TIMEOUT=2s\n"))


def broken_image(lab: Lab) -> tuple[str, dict[str, Any]]:
    """The digest of an image that never loads, and the host data that pins it."""
    digest = images.push_variant(lab, "broken", {**QUICK, "ROLLPIN_LAB_FAULT": "crash-load"})
    mirror = {"repository": f"{lab.registry}/{registry.REPOSITORY}", "pins": {"latest": digest}}
    return digest, {"rollpin_mirrors": {registry.REPOSITORY: mirror}}


@pytest.mark.parametrize("faults", FAULTS, ids=lambda faults: " ".join(faults.values()))
def test_engine_that_fails_is_taken_back(
    deployer: Deployer,
    standing: list[Host],
    before: dict[str, Snapshot],
    lab: Lab,
    tmp_path: Path,
    faults: dict[str, str],
) -> None:
    data = {"rollpin_settle": "2s", "rollpin_start_deadline": "7s"}
    own = {
        name: broken_image(lab)[1]
        if fault == "image"
        else {"rollpin_env": {**QUICK, "ROLLPIN_LAB_FAULT": fault}}
        for name, fault in faults.items()
    }
    # as either user: the way back must not depend on who went forward
    user: User = "deploy" if "image" in faults.values() else "root"
    run = deployer.run(user=user, data=data, on=own, profile=patient(tmp_path))
    after = look_at(standing)
    assert run.status == 1, run
    assert run.words == dict.fromkeys(faults, "restored"), run
    for host in standing:
        verdict, fault = run.verdicts[host.name], faults[host.name]
        assert SAID[fault] in verdict.below, verdict.text
        assert "outage " in verdict.line, verdict.text
        assert "outage not measured" not in verdict.line, verdict.text
        _as_before(host, before[host.name], after[host.name], run)


@pytest.mark.slow
@pytest.mark.parametrize("user", ["root", "deploy"])
def test_broken_image_is_taken_back_everywhere(
    deployer: Deployer, standing: list[Host], before: dict[str, Snapshot], lab: Lab, user: User
) -> None:
    """The image itself is broken, not what the host is told."""
    digest, data = broken_image(lab)
    run = deployer.run(user=user, data={**data, "rollpin_settle": "1s"})
    after = look_at(standing)
    assert run.status == 1, run
    assert run.words == dict.fromkeys(before, "restored"), run
    for host in standing:
        assert digest in run.verdicts[host.name].line
        assert "RuntimeError" in run.verdicts[host.name].below
        _as_before(host, before[host.name], after[host.name], run)
        assert not [i for i in after[host.name].images if i.startswith("rollpin/")]


def _as_before(host: Host, before: Snapshot, after: Snapshot, run: Run) -> None:
    """Same ids, same policies, nothing left over but the record, and the old one answers."""
    assert left_over(before, after) == {}, run
    assert link(host) == ""
    assert generation(host) == "42"
    story = journal(host)
    number = story[-1]["release"]
    told = [line["event"] for line in story if line["release"] == number]
    assert told[:3] == ["arm", "swap", "swapped"]
    assert told[-2:] == ["restoring", "restored"]
    # why, also for who was not watching; what an engine logged may hold keys and is not here
    assert story[-2]["detail"].startswith("by controller: "), story[-2]
    assert "its log:" not in story[-2]["detail"]
    assert {line["transaction"] for line in story if line["release"] == number} == {
        story[-1]["transaction"]
    }
    folder = f"{RELEASES}/{number}"
    kept = host.run(f"stat -c %a {folder}/logs/engine.log && cat {folder}/logs/engine.log").stdout
    mode, _, log = kept.partition("\n")
    assert mode == "600"  # an engine's log may hold what users sent
    assert "server_args=" in log
    assert json.loads(host.run(["cat", f"{folder}/logs/engine.state.json"]).stdout)["ExitCode"] >= 0
    # it ran under the service's name, and the old one was never called anything else
    assert LATEST.stem in host.run(["cat", f"{folder}/NOTE.md"]).stdout


@pytest.mark.slow
def test_slow_or_careless_engines_go_live(
    deployer: Deployer, standing: list[Host], before: dict[str, Snapshot], tmp_path: Path
) -> None:
    """A slow load, no caches written, a deaf ear for SIGTERM: nothing of it is a failure."""
    faults = {"lab1": "slow:3", "lab2": "no-cache", "lab3": "ignore-sigterm"}
    # failed releases before have filled the cache dirs
    side_by_side(lambda h: h.run("rm -rf /data/glm53_exp/*"), standing)
    own = {
        name: {"rollpin_env": {**QUICK, "ROLLPIN_LAB_FAULT": fault}}
        for name, fault in faults.items()
    }
    run = deployer.run(data={"rollpin_settle": "1s"}, on=own, profile=patient(tmp_path))
    assert run.status == 0, run
    assert run.words == dict.fromkeys(faults, "live"), run
    for host in standing:
        text = run.verdicts[host.name].below
        assert "/data/glm53_exp/fi_jit_cache:/root/.cache/flashinfer was not written" in text
        # the one that writes no cache is told of both
        both = "/data/glm53_exp/sglang_cache:/root/.cache/sglang was not written" in text
        assert both == (host.name == "lab2"), run
        assert generation(host) == "42"
