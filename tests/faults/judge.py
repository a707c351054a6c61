"""How a host stands after a fault, from outside: live, restored, or wrong and why."""

from __future__ import annotations

import json
import time
import urllib.request
from dataclasses import dataclass, field

from rollpin.lab.furnish import PORT
from rollpin.lab.host import Host
from tests.lab.controller import STATE, look

_ENDS = {"committed", "restored", "rolled-back"}


@dataclass(frozen=True)
class Standing:
    """What `look` saw, by kind."""

    containers: dict[str, tuple[str, str, str]]  # name -> id, state, policy
    rest: frozenset[str]
    releases: dict[int, str]

    @property
    def ids(self) -> dict[str, str]:
        return {ident: name for name, (ident, _, _) in self.containers.items()}


def standing(host: Host) -> Standing:
    containers, rest, releases = {}, set(), {}
    for line in look(host):
        kind, *words = line.split()
        if kind == "container":
            containers[words[1].lstrip("/")] = (words[0], words[2], words[3])
        elif kind == "release":
            releases[int(words[0].rstrip("/").rsplit("/", 1)[-1])] = words[1]
        elif "/run/rollpin/holder" not in line:  # which process last had the lock: no state
            rest.add(line)
    return Standing(containers, frozenset(rest), releases)


@dataclass
class Judgement:
    outcome: str  # live, restored or wrong
    faults: list[str] = field(default_factory=list)


def judge(
    host: Host,
    before: Standing,
    gone: frozenset[str],
    lost: frozenset[str],
    must_return: bool,
    staged: bool = False,
) -> Judgement:
    """gone: ids that the fault removed; lost: other lines of `look` that it removed. must_return:
    containers that ran and were removed have to be there again, made anew. staged: a controller
    that died before it armed leaves what it had staged, which a later deploy removes.
    """
    now = standing(host)
    fresh = {n: s for n, s in now.releases.items() if before.releases.get(n) != s}
    still = [f"release {n} is {s}" for n, s in now.releases.items() if s not in _ENDS | {"staged"}]
    faults = list(still)
    committed = [n for n, s in fresh.items() if s == "committed"]
    if committed:
        outcome = "live"
        faults += live_faults(now, before, max(committed), gone)
        faults += [f"left over: {n} {s}" for n, s in fresh.items() if s == "staged"]
    else:
        outcome = "restored"
        faults += restored_faults(now, before, gone, lost, must_return)
        faults += [f"left over: release {n} {s}" for n, s in fresh.items()]
        if staged:
            left: set[str] = set()
            for n in (n for n, s in fresh.items() if s == "staged"):
                if now.containers.get(f"glm53.r{n}", ("", "created"))[1] == "created":
                    left |= {f"left over: glm53.r{n}", f"left over: tag rollpin/glm53:{n}"}
                    left.add(f"left over: release {n} staged")
            faults = [f for f in faults if f not in left]
    served = any(s == "running" for _, s, _ in before.containers.values())
    if (served and must_return) or outcome == "live" or not gone:
        faults += _serves(host)
    faults += _journal(host, {n: s for n, s in fresh.items() if s != "staged"})
    return Judgement("wrong" if faults else outcome, faults)


def restored_faults(
    now: Standing, before: Standing, gone: frozenset[str], lost: frozenset[str], must_return: bool
) -> list[str]:
    out = []
    for name, (ident, state, policy) in before.containers.items():
        there = now.containers.get(name)
        if there == (ident, state, policy):
            continue
        if ident in gone:
            if there is None and (state != "running" or not must_return):
                continue
            if there is not None and there[1:] == (state, policy):
                continue
        out.append(f"{name} was {state} {policy} {ident[:12]}, is {there}")
    out += [f"left over: {name}" for name in now.containers if name not in before.containers]
    out += [f"missing: {x}" for x in sorted(before.rest - now.rest - lost)]
    # The name that the image of a container had was taken away: docker gives the last one of an
    # image in use away only by force.
    last = ("tag rollpin/glm53:",) if any(x.startswith("tag ") for x in lost) else ()
    new = sorted(x for x in now.rest - before.rest if not x.startswith(last))
    out += [f"left over: {x}" for x in new]
    return out


def live_faults(now: Standing, before: Standing, number: int, gone: frozenset[str]) -> list[str]:
    out = []
    serves = now.containers.get("glm53")
    # A rollback to what stood before release 1 serves under that one's name.
    anybody = any(s == "running" for _, s, _ in now.containers.values())
    if not anybody or (serves is not None and serves[1:] != ("running", "unless-stopped:0")):
        out.append(f"glm53 does not serve: {now.containers}")
    kept = now.ids
    for name, (ident, state, _) in before.containers.items():
        if state == "running" and ident not in gone and ident not in kept:
            out.append(f"{name} ({ident[:12]}) is gone")
    for name, (_, state, policy) in now.containers.items():
        if name != "glm53" and state != "running" and policy.split(":")[0] not in ("no", ""):
            out.append(f"{name} is {state} with policy {policy}")
        if name == f"glm53.r{number}":
            out.append(f"left over: {name}")
    allowed = (
        f"file {STATE}/RESTORE-glm53 ",
        f"file {STATE}/displaced/",
        "tag rollpin/glm53:",
        "volume ",
    )
    out += [f"left over: {x}" for x in sorted(now.rest - before.rest) if not x.startswith(allowed)]
    link = f"file {STATE}/RESTORE-glm53 {STATE}/glm53/releases/{number}/restore.sh"
    if link not in now.rest:
        out.append(f"{STATE}/RESTORE-glm53 does not lead to release {number}")
    return out


def _serves(host: Host) -> list[str]:
    """A generation from outside, as a user of the service asks for it."""
    body = json.dumps({"text": "2+2=", "sampling_params": {"max_new_tokens": 4}}).encode()
    url = f"http://{host.address}:{PORT}/generate"
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    last: object = None
    for _ in range(100):
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                if json.loads(answer.read()).get("text"):
                    return []
        except OSError as e:
            last = e
        time.sleep(0.1)
    return [f"nobody generates on port {PORT}: {last}"]


def _journal(host: Host, fresh: dict[int, str]) -> list[str]:
    """The last that the journal tells of each new release is how the host shows it."""
    text = host.run(f"cat {STATE}/glm53/journal.jsonl 2>/dev/null || true").stdout
    told: dict[int, str] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            if entry["event"] in (*_ENDS, "arm", "arm-failed", "refused", "restore-failed"):
                told[int(entry["release"])] = str(entry["event"])
        except (ValueError, KeyError):
            continue  # torn by a power cut
    out = [
        f"release {n} is {s}, the journal ends with {told.get(n)}"
        for n, s in fresh.items()
        if told.get(n) != s
    ]
    last = told[max(told)] if told else ""
    if last in ("arm", "restore-failed"):
        out.append(f"the journal ends with {last}")
    return out
