"""Hostile names, images, arguments and people: the scripts run, and values stay values.

Each rendered script is executed on a host of stubs. It may call `docker` with the planned
arguments, one by one, and nothing else may happen.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rollpin import note, places, scripts
from rollpin.facts.host_state import observe_script
from rollpin.observe import Container, HostState
from rollpin.plan import Plan
from rollpin.profile_values import Displace, Mount
from rollpin.scripts import Bound

from . import builders as a
from .stub_host import StubHost

CANARY = Path(tempfile.gettempdir()) / "rollpin-canary"
PAYLOADS = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned; ",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "\ntouch pwned\n",
    "' \n touch pwned # ",
    f"$(touch {CANARY})",
    "-rf",
    "--help",
    "#STOPS#\n",
    "#CREATE#",
    "\n#STARTS#\n",
    "\\",
    "'",
    '"',
    "$HOME",
    "${IFS}",
    "*",
    "!!",
    "é\u2028ü",
    "\t\r",
    "\x7f",
    "@SERVICE@",
    "|| true",
    "&",
    "> pwned",
    " ",
)
# Anything that a process can be given: no NUL, and what UTF-8 can say.
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
HOSTILE = st.lists(st.one_of(st.sampled_from(PAYLOADS), TEXT), min_size=1, max_size=3).map("".join)
POLICIES = HOSTILE.filter(lambda text: text not in ("", "no") and ":" not in text)
PATHS = HOSTILE.map(lambda text: "d" + text.replace("/", "_"))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@st.composite
def hostile_plans(draw: st.DrawFn, root: str, folder: str) -> Plan:
    """A release that displaces a container, and replaces another, all of it with bad values."""
    wanted = dataclasses.replace(
        a.profile(),
        argv=("python3", *draw(st.lists(HOSTILE, max_size=3))),
        env=draw(st.dictionaries(NAMES, HOSTILE, max_size=2)),
        secrets={"HF_TOKEN": "/nowhere"},
        mounts=(Mount("A", draw(HOSTILE), draw(HOSTILE), "ro"),),
        caches=(Mount("B", f"{folder}/{draw(PATHS)}/{draw(PATHS)}", draw(HOSTILE)),),
        displaces=(),
        restart_policy=draw(POLICIES),
        ulimits={"memlock": draw(HOSTILE)},
        name=draw(HOSTILE),
        model_path="org/model",
    )
    # Another name of a container than the service's, and none that is empty.
    name = draw(HOSTILE.filter(lambda n: n != "glm53" and n == n.strip().lstrip("/")))
    foreign = a.container(
        name,
        a.SCAN,
        *draw(st.lists(HOSTILE, max_size=3)),
        image=draw(HOSTILE),
        policy=draw(POLICIES),
        started=draw(HOSTILE.filter(lambda s: s.rstrip("\n") == s)),
        network="bridge",
    )
    wanted = dataclasses.replace(wanted, displaces=(Displace(name),))
    plan = a.plan(_state(foreign, root), wanted, by=draw(HOSTILE))
    assert not plan.refused, plan.refusals
    return plan


def _state(foreign: Container, root: str) -> HostState:
    engine = dataclasses.replace(a.ENGINE, root=root)
    r1 = a.with_release_1().r1
    return a.host(
        a.served(r1, a.R1),
        foreign,
        releases=(a.release(r1, a.R1),),
        engine=engine,
        listeners=(),
        gpu_apps=(),
        image=a.IMAGE,
    )


# Each example starts a hundred processes: a few of them, and no search for a smaller one.
SLOW = settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
BOUND = Bound("glm53-2-0badcafe", a.R2)


@SLOW
@given(st.data())
def test_swap_and_restore_run_the_planned_commands_only(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = StubHost(Path(folder))
        plan = data.draw(hostile_plans(str(host.docker_root), folder))
        directory = host.stands(plan, BOUND)
        ours, foreign = plan.stops
        name, policy = foreign.container.name, foreign.policy

        assert host.run(directory / "swap.sh") == (0, _any())
        assert host.changes() == [
            ["docker", "rename", a.R1, "glm53.r1"],
            ["docker", "rename", a.R2, "glm53"],
            ["docker", "update", "--restart", "no", a.R1],
            ["docker", "update", "--restart", "no", a.SCAN],
            ["docker", "stop", "-t", "120", a.R1, a.SCAN],
            ["docker", "start", a.R2],
        ]

        assert host.run(directory / "restore.sh", "controller") == (0, _any())
        assert host.changes() == [
            ["docker", "stop", "-t", "10", a.R1, a.SCAN],
            ["docker", "update", "--restart", "no", a.R2],
            ["docker", "stop", "-t", "10", a.R2],
            ["docker", "rename", a.R2, "glm53.r2"],
            ["docker", "rename", a.R1, "glm53"],
            ["docker", "start", a.R1],
            ["docker", "start", a.SCAN],
            ["docker", "update", "--restart", ours.policy, a.R1],
            ["docker", "update", "--restart", policy, a.SCAN],
            ["docker", "rm", "--volumes", a.R2],
            ["docker", "rmi", "--no-prune", "rollpin/glm53:2"],
        ]
        assert (directory / "restored").exists()
        assert (host.stub / "containers" / a.SCAN / "name").read_bytes().decode() == name
        assert host.policy(a.SCAN) == policy
        _nothing_else_happened(host, plan)


@SLOW
@given(st.data())
def test_commit_and_what_follows_run_the_planned_commands_only(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = StubHost(Path(folder))
        plan = data.draw(hostile_plans(str(host.docker_root), folder))
        directory = host.stands(plan, BOUND)
        assert host.run(directory / "swap.sh") == (0, _any())
        host.calls()

        assert host.run(directory / "commit.sh", a.R2, "77", "then") == (0, _any())
        assert host.changes() == [["docker", "update", "--restart", plan.main.policy, a.R2]]
        assert (directory / "committed").exists()

        (host.stub / "ids").write_text("")
        (host.state / "displaced").mkdir()
        given_back = directory / places.giveback_name(a.SCAN)
        assert host.run(given_back) == (0, _any())
        assert host.changes() == [
            ["docker", "start", a.SCAN],
            ["docker", "update", "--restart", plan.displaced[0].policy, a.SCAN],
        ]

        assert host.run(directory / "restore.sh") == (0, _any())  # by hand: a rollback
        assert host.changes() == [
            ["docker", "update", "--restart", "no", a.R2],
            ["docker", "stop", "-t", "120", a.R2],
            ["docker", "rename", a.R2, "glm53.r2"],
            ["docker", "rename", a.R1, "glm53"],
            ["docker", "start", a.R1],
            ["docker", "update", "--restart", plan.stops[0].policy, a.R1],
            ["docker", "update", "--restart", plan.stops[1].policy, a.SCAN],
        ]
        assert (directory / "rolled-back").exists()
        _nothing_else_happened(host, plan)


@SLOW
@given(st.data(), HOSTILE, HOSTILE)
def test_staging_runs_the_planned_commands_only(data: st.DataObject, token: str, why: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = StubHost(Path(folder))
        plan = data.draw(hostile_plans(str(host.docker_root), folder))
        (host.stub / "created").write_text(f"{a.R2}\n")
        (host.stub / "ids").write_text("")
        assert plan.engine is not None
        (host.stub / "engine").write_text(f"{plan.engine.id} {plan.engine.root}\n")
        reference = plan.pin.reference if plan.pin else ""
        secret = f"HF_TOKEN={shlex.quote(token)}\n"
        status, said = host.run(scripts.render_stage(plan, BOUND, "", secret))
        assert (status, said.split("\n")[-2]) == (0, f"container {a.R2}")
        tag, probe, create = host.changes()
        assert tag == ["docker", "tag", reference, "rollpin/glm53:2"]
        ((cache, inside),) = plan.cache_dirs
        assert probe[:2] == ["docker", "run"]
        assert f"{cache}:{inside}" in probe
        assert probe[-1] == inside
        assert create == list(plan.create)
        assert Path(cache).is_dir()
        assert (host.stub / "create.token").read_bytes().decode() == token
        env = host.state / "glm53/releases/2/env"
        assert env.stat().st_mode & 0o777 == 0o600
        _nothing_else_happened(host, plan)

        assert host.run(scripts.render_unstage(plan, BOUND, True, why)) == (0, _any())
        assert host.changes() == [
            ["docker", "rmi", "--no-prune", "rollpin/glm53:2"],
            ["docker", "rmi", reference],
        ]
        assert not (host.state / "glm53/releases").exists()
        _nothing_else_happened(host, plan)


class _any(str):
    """Equal to whatever a script said."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str)

    __hash__ = str.__hash__


def _nothing_else_happened(host: StubHost, plan: Plan) -> None:
    assert host.untouched(), list(host.cwd.iterdir())
    assert not CANARY.exists()
    known = {"stub", "state", "run", "units", "docker root", "cwd"}
    caches = {Path(p).relative_to(host.folder).parts[0] for p, _ in plan.cache_dirs}
    assert {p.name for p in host.folder.iterdir()} <= known | caches
    journal = host.state / plan.service / "journal.jsonl"
    for line in journal.read_bytes().decode().split("\n")[:-1] if journal.exists() else ():
        entry = json.loads(line)
        assert entry["service"] == "glm53"
        assert isinstance(entry["by"], str)


# The plain form: what a shell reads is the value.


def head(script: str) -> list[str]:
    """The words of the assignments at a script's head, as a POSIX shell splits them."""
    text = script.partition("\nset -u\n")[2].partition("\n\n# Shared by every script")[0]
    return shlex.split(text)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data(), HOSTILE)
def test_each_assignment_is_its_value(data: st.DataObject, transaction: str) -> None:
    plan = data.draw(hostile_plans("/var/lib/do'cker", "/c"))
    bound = Bound(transaction, a.R2)
    words = "; ".join(scripts.forward(plan, a.R2))
    shared = {
        "STATE": "/var/lib/rollpin",
        "RUN": "/run/rollpin",
        "SERVICE": "glm53",
        "RELEASE": "2",
        "TX": transaction,
        "WHO": plan.by,
        "ENGINE_ID": a.ENGINE.id,
        "DOCKER_ROOT": "/var/lib/do'cker",
        "BALLAST": "/var/lib/do'cker/.rollpin-ballast",
        "GUARD": "on",
        "WORDS": words,
    }
    rendered = scripts.render(plan, bound)
    for name, text in rendered.items():
        if not name.endswith(".sh"):
            continue
        values = dict(word.split("=", 1) for word in head(text))
        assert shared.items() <= values.items()
        assert subprocess_free(text)
    back = dict(w.split("=", 1) for w in head(rendered[places.giveback_name(a.SCAN)]))
    foreign = plan.displaced[0]
    assert (back["ID"], back["NAME"], back["POLICY"]) == (
        a.SCAN,
        foreign.container.name,
        foreign.policy,
    )
    # Every planned line is split into the planned words again.
    assert shlex.split(shlex.join(plan.create)) == list(plan.create)
    assert shlex.split(scripts.forward(plan, a.R2)[-1])[3] == plan.main.policy
    assert note.release(plan, bound, a.AT)


def subprocess_free(text: str) -> bool:
    """The constant text begins where the head ends: no value got there."""
    return text.count("\n# Shared by every script of a release.") == 1


@given(HOSTILE, HOSTILE, st.lists(HOSTILE, max_size=2), st.lists(HOSTILE, max_size=2))
def test_the_fact_quotes_its_values(
    service: str, image: str, paths: list[str], idle: list[str]
) -> None:
    text = observe_script(service, image, paths, idle, idle)
    first = text.partition("\n# Observes; changes nothing.")[0]
    assert shlex.split(first) == [
        f"SERVICE={service}",
        "STATE=/var/lib/rollpin",
        "RUN=/run/rollpin",
        f"IMAGE={image}",
        "PATHS=" + "\n".join(paths),
        f"IDLE={' '.join(idle)}",
        f"DIFFS={' '.join(idle)}",
    ]


def test_arming_writes_no_value_into_another_field() -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = StubHost(Path(folder))
        engine = dataclasses.replace(a.ENGINE, root=str(host.docker_root))
        by = 'eve"\nservice=other\nlease=9\\'
        wanted = dataclasses.replace(a.profile(), caches=())
        plan = a.plan(a.host(a.production(), engine=engine), wanted, by=by)
        bound = Bound("glm53-1-0badcafe", a.R1)
        directory = host.stands(plan, bound)
        (directory / "armed").unlink()
        (host.folder / "units").mkdir()
        text = note.displaced(plan, plan.stops[0], a.AT)
        (directory / f"displaced-{a.PP4}.md").write_text(text)
        status, said = host.run(directory / "arm.sh")
        assert (status, said.split()[-1]) == (0, "armed")
        lines = (host.folder / "run/transaction").read_text().splitlines()
        assert [line.partition("=")[0] for line in lines] == [
            *("id", "service", "release", "by", "since", "seconds", "owner")
        ]
        assert lines[1:4] == ["service=glm53", "release=1", 'by=eve" service=other lease=9\\']
        assert (host.state / "RESTORE-glm53").readlink() == directory / "restore.sh"
        assert (host.state / f"displaced/{a.PP4}.md").read_text() == text
        assert host.changes() == []
        _nothing_else_happened(host, plan)
