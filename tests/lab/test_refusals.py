"""What a deploy refuses: by name, untouched, all at once; from hosts as `lab up` left them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rollpin.lab import furnish
from rollpin.lab.host import Host
from rollpin.lab.state import Lab
from tests.lab.deploying import (
    QUICKLY,
    STATE,
    Deployer,
    Watched,
    differences,
    fresh,
    journal,
    look,
    look_at,
)

NAMES = ["lab1", "lab2", "lab3"]


# --- what was shown is what is done --------------------------------------------------------------


def test_host_that_changed_since_the_plan_is_refused(
    all_hosts: list[Host], deployer: Deployer
) -> None:
    host, on = all_hosts[1], [all_hosts[1].name]
    fresh([host])
    dry = deployer.run(flags=["--dry"], on=on, data=QUICKLY)
    host.run(["docker", "update", "--restart", "on-failure:3", furnish.PRODUCTION])
    before = look(host)
    bound = dry.plan_hash(host.name)
    run = deployer.run(on=on, data={**QUICKLY, "plan": bound})
    assert run.status == 1, run
    assert run.words == {host.name: "refused"}, run
    assert f"bound was {bound}; see it with --dry" in run.verdicts[host.name].below
    assert differences(before, look(host)) == {}

    # between the preview and the key that starts it
    watched = Watched(deployer.start(flags=[], on=on, data=QUICKLY))
    watched.until("Press enter to execute...")
    host.run(["docker", "restart", furnish.PRODUCTION])
    furnish.wait_healthy(host)
    before = look(host)
    watched.answer("")
    run = watched.end()
    assert run.status == 1, run
    assert run.words == {host.name: "refused"}, run
    below = run.verdicts[host.name].below
    assert "the host changed since the plan was shown: glm53-pp4: started " in below
    assert differences(before, look(host)) == {}


# --- refusals: by name, and untouched ------------------------------------------------------------


@contextmanager
def prepared(host: Host, script: str, undo: str = "") -> Iterator[None]:
    """The host with something in the way; `undo` takes away what a reset does not."""
    try:
        host.run(f"set -e\n{script}", timeout=60)
        yield
    finally:
        host.run(undo or ":")


SIT = "python3 -c 'import signal; signal.pause()'"
# name -> (what is put in the way, how it goes away, what the refusal says)
OBSTACLES: Mapping[str, tuple[str, str, list[str]]] = {
    "published port": (
        "docker stop -t 0 glm53-pp4\n"
        f"docker run -d --init --name squatter -p 30000:30000 IMAGE {SIT}",
        "",
        ["squatter (", "publishes port 30000", "does not say that it may displace squatter"],
    ),
    "port on the host's network": (
        "docker stop -t 0 glm53-pp4\n"
        "docker run -d --init --name squatter --network host IMAGE python3 -m http.server 30000",
        "",
        ["squatter (", "listens on port 30000", "does not say that it may displace squatter"],
    ),
    "GPU container": (
        f"docker run -d --init --name trainer --gpus all IMAGE {SIT}",
        "",
        ["trainer (", "asks for GPUs all", "does not say that it may displace trainer"],
    ),
    "host process": (
        "docker stop -t 0 glm53-pp4\n"
        "systemd-run --unit=lab-squatter python3 -m http.server 30000\n"
        "until ss -Hltn sport = :30000 | grep -q .; do sleep 0.05; done",
        "systemctl stop lab-squatter",
        ["port 30000 is held by process ", "(python3) of the host", "ss -ltnp 'sport = :30000'"],
    ),
    "busy": (
        "docker rm -f dsv4_scan\n"
        "docker run -d --init --name dsv4_scan --gpus all --restart always IMAGE"
        " sh -c 'while :; do echo working; sleep 0.2; done'\n"
        "until docker logs dsv4_scan | grep -q .; do sleep 0.05; done",
        "",
        ["dsv4_scan (", "only after 2 s idle, and it was active", "Wait, or ask its owner"],
    ),
    "unknown GPUs": (
        "mkdir -p /run/rollpin-lab\n"
        """echo '{"exit": 9, "stderr": "GPU is lost"}' >/run/rollpin-lab/nvidia-smi.json""",
        "rm -rf /run/rollpin-lab",
        ["the GPUs could not be observed", "who is on the GPUs could not be observed"],
    ),
    "model missing": (
        "mv /data/hf_models/GLM-5.3-NVFP4 /data/hf_models/elsewhere",
        "mv /data/hf_models/elsewhere /data/hf_models/GLM-5.3-NVFP4",
        ["the host has no /data/hf_models/GLM-5.3-NVFP4/config.json"],
    ),
    "noexec": (
        "mkdir -p /data/glm53_exp && mount -t tmpfs -o noexec lab /data/glm53_exp",
        "umount /data/glm53_exp; rm -rf /data/glm53_exp",
        ["the filesystem of /data/glm53_exp/sglang_cache is mounted noexec"],
    ),
    "run with --rm": (
        "docker rm -f glm53-pp4\n"
        f"docker run -d --rm --init --name glm53-pp4 --gpus all IMAGE {SIT}",
        "",
        ["glm53-pp4 (", "it was run with --rm: a stop deletes it"],
    ),
}


IN_THE_WAY = {
    "lab1": ["busy", "published port", "model missing"],
    "lab2": ["host process", "GPU container", "noexec"],
    "lab3": ["port on the host's network", "run with --rm", "unknown GPUs"],
}


def test_refused_by_name_untouched_and_all_at_once(
    all_hosts: list[Host], deployer: Deployer, image: str
) -> None:
    hosts = fresh(all_hosts[:3])
    with ExitStack() as stack:
        for host in hosts:
            for name in IN_THE_WAY[host.name]:
                put, undo, _ = OBSTACLES[name]
                stack.enter_context(prepared(host, put.replace("IMAGE", image), undo))
        before = look_at(hosts)
        dry = deployer.run(data=QUICKLY, flags=["--dry"])
        run = deployer.run(data=QUICKLY)
        after = look_at(hosts)
    assert sorted(OBSTACLES) == sorted(name for names in IN_THE_WAY.values() for name in names)
    # a look tells a script what a deploy would come to
    assert dry.status == 1, dry
    assert run.status == 1, run
    assert run.words == dict.fromkeys(NAMES, "refused"), run
    for host in hosts:
        verdict, plan = run.verdicts[host.name], dry.plan(host.name)
        assert "nothing was stopped" in verdict.line
        assert "refused, nothing would be touched" in plan
        for name in IN_THE_WAY[host.name]:
            for words in OBSTACLES[name][2]:
                assert words in verdict.below, f"{name}: {verdict.text}"
                assert words in plan, f"{name}: {plan}"
        assert differences(before[host.name], after[host.name]) == {}, run


def test_failed_stage_is_refused_and_leaves_nothing(
    all_hosts: list[Host], deployer: Deployer, lab: Lab, tmp_path: Path
) -> None:
    """A dead registry, a digest that nobody has, cache dirs that cannot be written."""
    hosts = fresh(all_hosts[:3])
    nothing = f"sha256:{'5' * 64}"
    repository = f"{lab.registry}/lmsysorg/sglang"
    own = {
        "lab1": {
            "rollpin_mirrors": {
                "lmsysorg/sglang": {
                    "repository": f"{lab.gateway}:5999/lmsysorg/sglang",
                    "pins": {"latest": lab.images["latest"]},
                }
            }
        },
        "lab2": {
            "rollpin_mirrors": {
                "lmsysorg/sglang": {"repository": repository, "pins": {"latest": nothing}}
            }
        },
        "lab3": {},
    }
    said = {
        "lab1": "connection refused",
        "lab2": f"pulling {repository}@{nothing}: not found",
        "lab3": "the container cannot write and execute in a cache dir",
    }
    shut = (
        "mkdir -p /data/glm53_exp/sglang_cache /data/glm53_exp/fi_jit_cache\n"
        "mount --bind /data/glm53_exp /data/glm53_exp\n"
        "mount -o remount,bind,ro /data/glm53_exp"
    )
    with prepared(hosts[2], shut, "umount /data/glm53_exp; rm -rf /data/glm53_exp"):
        before = look_at(hosts)
        run = deployer.run(on=own, data=QUICKLY)
        after = look_at(hosts)
    assert run.status == 1, run
    assert run.words == dict.fromkeys(NAMES, "refused"), run
    for host in hosts:
        verdict = run.verdicts[host.name]
        assert said[host.name] in verdict.below, verdict.text
        assert "nothing was stopped" in verdict.line
        left = differences(before[host.name], after[host.name])
        # a line that says so is all that may stay
        files = left.pop("files", ({}, {}))[1]
        assert left == {}, run
        assert {f for f in files if not f.startswith("/run/rollpin")} <= {
            STATE,
            f"{STATE}/mutate.lock",
            f"{STATE}/glm53",
            f"{STATE}/glm53/journal.jsonl",
        }
        assert [f for f in files if f.startswith("/run/rollpin/")] == []
    assert journal(hosts[2])[-1]["event"] == "refused"
