"""Judging a service: its container, the port's owner, readiness, identity, a real generation.

Nothing here believes a static route: identity is tied to the container that owns the port, and a
service is good only when it has generated the expected answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gevent

from rollpin.docker_api import DockerApi
from rollpin.engines import ENGINES
from rollpin.engines.base import BAD_LINES, Engine, chat_request, judge_generation
from rollpin.errors import HostError, Lost
from rollpin.plan import Target
from rollpin.probe import NoAnswer, NotListening, Probe, Response
from rollpin.remote import Remote, at_most, patiently

GENERATION_DEADLINE = 120.0


_RAISED = re.compile(r"^[\w.]*(Error|Exception|Interrupt|Exit)\b")


class StartFailed(HostError):
    """What was started will not become ready.

    `quoted` is what the engine logged: it may hold keys, and goes to the screen only. `ours` is
    the message without it.
    """

    def __init__(self, ours: str, quoted: str = "") -> None:
        super().__init__(f"{ours}; its log: {quoted}" if quoted else ours)
        self.ours = ours


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True)
class Health:
    """One examination. `uptime` is the host's, in seconds, when it was done."""

    container: str
    pid: int
    started_at: str
    restart_count: int
    checks: tuple[Check, ...]
    uptime: float = 0.0

    @property
    def good(self) -> bool:
        return bool(self.checks) and all(c.ok for c in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Without the details, in which an engine may have said anything."""
        return {**self.__dict__, "checks": [[c.name, c.ok] for c in self.checks]}

    @classmethod
    def from_json(cls, v: Mapping[str, Any]) -> Health:
        """Raises KeyError, TypeError or ValueError for what `to_json` did not write."""
        return cls(**{**v, "checks": tuple(Check(str(n), bool(ok)) for n, ok in v["checks"])})

    def failures(self) -> list[str]:
        return [f"{c.name}: {c.detail}" for c in self.checks if not c.ok]

    def worse_than(self, baseline: Health) -> list[str]:
        """Checks that passed in the baseline and fail now."""
        passed = {c.name for c in baseline.checks if c.ok}
        return [f"{c.name}: {c.detail}" for c in self.checks if not c.ok and c.name in passed]


class Examiner:
    """Examines services of one host."""

    def __init__(
        self, remote: Remote, api: DockerApi, probe: Probe, patience: float = 30.0
    ) -> None:
        """`patience`: for how many seconds a lost connection is taken up again."""
        self.remote = remote
        self.api = api
        self.probe = probe
        self.patience = patience

    def examine(self, target: Target) -> Health:
        """All checks once. Raises Lost when the host does not answer."""
        return patiently(self.patience, lambda: self._examine(target))

    def find(self, ident: str) -> dict[str, Any] | None:
        """The container of that id, or the one that was made again in its place. Raises Lost."""
        return patiently(self.patience, lambda: self.api.find_container(ident))

    def _inspect(self, ident: str) -> dict[str, Any] | None:
        return patiently(self.patience, lambda: self.api.inspect_container(ident))

    def _examine(self, target: Target) -> Health:
        found = self.api.inspect_container(target.container)
        if found is None:
            return Health("", 0, "", 0, (Check("container", False, "it is gone"),))
        state = found["State"]
        checks = [_container_check(state)]
        engine = ENGINES.get(target.engine)
        if checks[0].ok and engine:
            checks.append(self._owner(target, found))
            checks.append(self._ready(engine, target))
            if checks[-1].ok:
                checks += self._identity(engine, target)
                checks.append(self._generation(engine, target))
        return Health(
            found["Id"],
            int(state.get("Pid") or 0),
            state.get("StartedAt", ""),
            int(found.get("RestartCount") or 0),
            tuple(checks),
            self.uptime(),
        )

    def await_good(
        self, target: Target, within: float, still_ours: Callable[[], None], fresh: bool
    ) -> Health:
        """Waits until every check passes. Raises StartFailed at once when the container ends or
        contradicts the plan, and when `within` seconds are over. `fresh`: its whole log is about
        this start, so the ready marker must be there.
        """
        engine = ENGINES.get(target.engine)
        pause, waited_for = 0.2, "nothing yet"
        with at_most(within):
            while True:
                still_ours()
                found = self._inspect(target.container)
                if found is None:
                    raise StartFailed("the container is gone")
                if found["State"]["Status"] != "running":
                    raise self._ended(target, found)
                if engine is None:
                    return self.examine(target)
                # Said when the time is over in the middle of asking.
                before, waited_for = waited_for, f"{engine.ready_path} gives no answer"
                ready = patiently(self.patience, partial(self._ready, engine, target))
                waited_for = ready.detail or before
                if ready.ok:
                    waited_for = "ready, but no generation came back"
                    health = self.examine(target)
                    if not health.good:
                        # Ready and wrong does not get better by waiting.
                        raise StartFailed("; ".join(health.failures()))
                    if not fresh or self._marker(engine, target):
                        return health
                    waited_for = f"the log has no {engine.ready_marker!r}"
                gevent.sleep(pause)
                pause = min(pause * 1.25, 3.0)
        raise StartFailed(f"not ready within {within:g} s: {waited_for}")

    def await_as_good(self, target: Target, baseline: Health) -> Health:
        """Waits until nothing that was good in the baseline is bad, or the deadline is over."""
        pause = 0.5
        last = self.examine(target)
        with at_most(target.deadline):
            while last.worse_than(baseline):
                gevent.sleep(pause)
                pause = min(pause * 1.25, 3.0)
                last = self.examine(target)
        return last

    def settle(self, target: Target, first: Health, still_ours: Callable[[], None]) -> Health:
        """Watches for `target.settle` seconds: same process, same start, and good at the end."""
        with at_most(target.settle):
            while True:
                still_ours()
                self._same(target, first)
                gevent.sleep(min(1.0, max(0.1, target.settle / 4)))
        self._same(target, first)
        last = self.examine(target)
        if not last.good:
            raise StartFailed(f"no longer good after {target.settle:g} s: {last.failures()[0]}")
        return last

    def _same(self, target: Target, first: Health) -> None:
        found = self._inspect(target.container)
        if found is None or found["State"]["Status"] != "running":
            if found:
                raise self._ended(target, found)
            raise StartFailed("the container went away while settling")
        now = (found["State"]["Pid"], found["State"]["StartedAt"], found.get("RestartCount") or 0)
        if now != (first.pid, first.started_at, first.restart_count):
            raise StartFailed("it was restarted while settling")

    def _ended(self, target: Target, found: dict[str, Any]) -> StartFailed:
        state = found["State"]
        assert isinstance(state, dict)
        text = f"the container is {state['Status']}, exit status {state.get('ExitCode')}"
        if state.get("Error"):
            text += f" ({state['Error']})"
        if state.get("OOMKilled"):
            text += " (out of memory)"
        try:
            lines = [x for x in self._logs(target, 200).splitlines() if x.strip()]
        except (HostError, Lost):
            return StartFailed(text)
        return StartFailed(text, cause(lines))

    def _logs(self, target: Target, tail: int) -> str:
        return patiently(self.patience, lambda: self.api.logs(target.container, tail))

    def _marker(self, engine: Engine, target: Target) -> bool:
        try:
            return engine.ready_marker in self._logs(target, 2000)
        except HostError:
            return True  # a log driver that cannot be read back says nothing against it

    def _owner(self, target: Target, found: dict[str, Any]) -> Check:
        """The port belongs to this container's own process, or to its published port."""
        name = "port owner"
        if target.network != "host":
            bound = str((found.get("HostConfig") or {}).get("PortBindings"))
            ok = f"'{target.port}'" in bound
            return Check(name, ok, "" if ok else f"port {target.port} is not published")
        answer = self.remote.run(_OWNER, (str(target.port),))
        owners = answer.output.split()
        ident = str(found["Id"])
        if not owners:
            return Check(name, False, f"nobody listens on port {target.port}")
        if all(ident == o for o in owners):
            return Check(name, True)
        others = ", ".join(sorted({o[:12] for o in owners if o != ident}))
        return Check(name, False, f"port {target.port} belongs to {others}, not to {ident[:12]}")

    def _ready(self, engine: Engine, target: Target) -> Check:
        name = "ready"
        try:
            r = self._get(engine.ready_path, target, engine.ready_timeout)
        except (NotListening, NoAnswer) as e:
            return Check(name, False, str(e))
        ok = r.status == 200
        return Check(name, ok, "" if ok else f"{engine.ready_path} answers {r.status}")

    def _identity(self, engine: Engine, target: Target) -> list[Check]:
        out = []
        for path in engine.identity_paths:
            name = f"identity {path}"
            try:
                r = self._get(path, target, 15)
                if r.status == 404:
                    # Its older name; an engine that lacks both says nothing.
                    r = self._get(path.replace("/", "/get_", 1), target, 15)
            except (NotListening, NoAnswer) as e:
                out.append(Check(name, False, str(e)))
                continue
            if r.status in (401, 404):
                continue
            wrong = (
                engine.identity(path, r.json(), target)
                if r.status == 200
                else [f"{path} answers {r.status}"]
            )
            out.append(Check(name, not wrong, "; ".join(wrong)))
        return out

    def _get(self, path: str, target: Target, within: float) -> Response:
        return self.probe.request(
            "GET", path, target.port, target.container, within=within, key=target.api_key
        )

    def _generation(self, engine: Engine, target: Target) -> Check:
        name = "generation"
        request = chat_request(engine.model_name(target), target.prompt)
        try:
            r = self.probe.request(
                "POST",
                "/v1/chat/completions",
                target.port,
                target.container,
                request,
                GENERATION_DEADLINE,
                target.api_key,
            )
        except (NotListening, NoAnswer) as e:
            return Check(name, False, str(e))
        wrong = judge_generation(r.status, r.text, target.expect)
        return Check(name, wrong is None, wrong or "")

    def uptime(self) -> float:
        """Seconds since the host's boot; 0.0 when it does not say."""
        try:
            return float(self.remote.run("cut -d' ' -f1 /proc/uptime").output)
        except (ValueError, Lost):
            return 0.0


def cause(lines: Sequence[str]) -> str:
    """The line of a log that says why: the exception next to the engine's own farewell."""
    end = next((n for n, x in enumerate(lines) if any(b in x for b in BAD_LINES)), len(lines))
    before = [x for x in lines[:end] if _RAISED.match(x)]
    after = [x for x in lines[end:] if _RAISED.match(x)]
    last = before[-1:] or after[:1] or list(lines[end : end + 1]) or list(lines[-1:])
    return last[0].strip()[:200] if last else ""


def _container_check(state: dict[str, Any]) -> Check:
    ok = state["Status"] == "running"
    return Check("container", ok, "" if ok else f"it is {state['Status']}")


# Container ids of the processes that listen on port $1; `host` for a process in none.
_OWNER = r"""
for p in $(ss -Hltnp "sport = :$1" | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u); do
    c=$(sed -n 's/.*\([0-9a-f]\{64\}\).*/\1/p' "/proc/$p/cgroup" 2>/dev/null | head -n 1)
    echo "${c:-host}"
done
"""
