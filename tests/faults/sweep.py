"""Runs cells (a fault at a boundary) on the lab's hosts, side by side; keeps the results."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from rollpin.errors import RollpinError
from rollpin.lab.host import Host
from tests.faults.bench import BOUND, Bench, Watch, token
from tests.faults.cases import FAULTS, SCENARIOS, STEPS, Boundary, Harm, applies, cured, start
from tests.faults.gate import plain
from tests.faults.judge import Judgement, judge, standing
from tests.lab.controller import ROOT, Controller

EXCEPTION = "dockerd SIGKILL outside a transaction (`unless-stopped`, no live-restore)"
BAD = ("wrong", "not reached")
# What a verdict may say for what the host shows.
_WORDS = {
    "live": {"live", "unchanged"},
    "restored": {"refused", "restored", "restored, unverified"},
}


_TELL = """docker ps -a --no-trunc --format '{{.ID}} {{.Names}} {{.Status}}'
for c in $(docker ps -q); do docker logs --tail 4 $c 2>&1; done
ps -eo pid,ppid,stat,etimes,args | grep -v '[]]$' | tail -n 40 | cut -c1-150
cd /var/lib/rollpin/glm53 && tail -n 25 journal.jsonl | cut -c1-300
tail -n 20 "$(ls -dt releases/* | head -n 1)"/logs/*.log"""


@dataclass(frozen=True)
class Cell:
    fault: str
    boundary: Boundary

    @property
    def key(self) -> str:
        return f"{self.fault} @ {self.boundary.name}"


@dataclass(frozen=True)
class Result:
    """outcome: live, restored, wrong, exception, or not reached (which is no good either)."""

    key: str
    fault: str
    boundary: str
    outcome: str
    seconds: float | None
    host: str
    took: float
    faults: tuple[str, ...] = ()


def commit() -> str:
    """The commit that is swept; with what is not committed, it is said."""

    def run(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()

    dirty = "+" if run("status", "--porcelain", "--untracked-files=no") else ""
    return (run("rev-parse", "--short=12", "HEAD") or "unknown") + dirty


def record(bench: Bench, scenario: str) -> tuple[list[Boundary], list[str]]:
    """Every boundary of an undisturbed run of the scenario, and the command lines of its plan."""
    bench.ensure(scenario, "plain")
    before = standing(bench.host)
    bench.gate.install()
    try:
        with start(bench.host, scenario, token()) as run:
            status = run.end(BOUND)
            wanted = (1, "restored") if scenario == "failed" else (0, "live")
            assert (status, run.word()) == wanted, f"{scenario}: {run.output[-3000:]}"
        seen = [plain(line, before.ids) for line in bench.gate.seen()]
    finally:
        bench.gate.remove()
    found = [Boundary(scenario, n, words) for n, words in enumerate(seen, 1)]
    if scenario == "failed":
        # What comes before the restore is the next deploy's.
        first = next(n for n, b in enumerate(found) if b.words.endswith("rollpin-restore"))
        found = found[first:]
    else:
        found += [Boundary(scenario, 0, step) for step in STEPS]
    planned = [
        plain(line.strip().removeprefix("| ").strip(), before.ids)
        for line in run.output.splitlines()
        if line.strip().removeprefix("| ").strip().startswith("docker ")
    ]
    return found, planned


def by_id(command: str) -> str:
    """A planned command as it is run: docker has given the new container its id by then."""
    words = command.split()
    at = {"rename": 2, "start": 2}.get(words[1], len(words) - 1)
    return " ".join([*words[:at], "the-new-one", *words[at + 1 :]])


def cells(boundaries: Iterable[Boundary]) -> list[Cell]:
    out = []
    for scenario in SCENARIOS:
        own = [b for b in boundaries if b.scenario == scenario]
        begins = next((b.number for b in own if b.words.startswith("docker start")), 10**6)
        for boundary in own:
            ready = boundary.words == "ready" or (
                boundary.number > begins and "swap.rc" not in boundary.words
            )
            out += [
                Cell(fault.name, boundary)
                for fault in FAULTS.values()
                if applies(fault, boundary, ready)
            ]
    return out


def sample(everything: Sequence[Cell], count: int, seed: str) -> list[Cell]:
    """`count` cells, every fault as often as any other, the same for the same seed."""
    rng = random.Random(seed)
    by_fault = {name: [c for c in everything if c.fault == name] for name in FAULTS}
    for own in by_fault.values():
        rng.shuffle(own)
    names = list(by_fault)
    rng.shuffle(names)
    out: list[Cell] = []
    while len(out) < min(count, len(everything)):
        for name in names:
            if by_fault[name] and len(out) < count:
                out.append(by_fault[name].pop())
    return out


def hurt(bench: Bench, cell: Cell) -> Result:
    """One cell, from its start to the next deploy. Raises nothing."""
    began = time.monotonic()

    def result(outcome: str, seconds: float | None = None, faults: Sequence[str] = ()) -> Result:
        took = round(time.monotonic() - began, 1)
        return Result(
            cell.key, cell.fault, cell.boundary.name, outcome, seconds, bench.host.name, took,
            tuple(faults),
        )  # fmt: skip

    try:
        fault, boundary = FAULTS[cell.fault], cell.boundary
        bench.ensure(boundary.scenario, fault.layout)
        before = standing(bench.host)
        bench.gate.install(boundary.number)
        mark = token()
        with start(bench.host, boundary.scenario, mark) as run:
            h = Harm(bench, run, mark, boundary, before)
            with cured(h):
                if not _reach(bench, run, boundary):
                    return result("not reached", faults=(run.output[-2000:], _told(bench)))
                if boundary.number:
                    seen = plain(bench.gate.seen()[-1], before.ids)
                    if seen != boundary.words:
                        return result("not reached", faults=(f"held before {seen}",))
                inside = bench.open_release() != "" and not boundary.deciding
                watch = Watch(bench.host)
                fault.inject(h)
                found = _end(bench, h, cell, inside)
                away = watch.seconds()
                seconds = None if fault.blind else away
        bench.gate.remove()
        if found.outcome == "exception":
            bench.fresh()
            return result("exception", seconds)
        if found.outcome == "wrong":
            return result("wrong", seconds, [*found.faults, run.output[-2500:], _told(bench)])
        bench.deploy()
        return result(found.outcome, seconds)
    except (AssertionError, RollpinError, OSError, StopIteration, ValueError) as e:
        trace = traceback.format_exc()[-1500:]
        return result("wrong", faults=(f"{type(e).__name__}: {e}", trace, _told(bench)))
    finally:
        bench.gate.open()


def _told(bench: Bench) -> str:
    """What the host tells of itself, for whoever looks for the reason."""
    try:
        return bench.host.run(_TELL, check=False, timeout=30).stdout[-7000:]
    except (RollpinError, OSError) as e:
        return str(e)


def _reach(bench: Bench, run: Controller, boundary: Boundary) -> bool:
    if not boundary.number:
        try:
            run.wait_for(STEPS[boundary.words], BOUND)
        except AssertionError:
            return False
        return True
    end = time.monotonic() + BOUND
    while not bench.gate.reached():
        if run.process.poll() is not None or time.monotonic() > end:
            return bench.gate.reached()
        time.sleep(0.02)
    return True


def _end(bench: Bench, h: Harm, cell: Cell, inside: bool) -> Judgement:
    """Waits for everybody to end, then judges; what goes a moment later is waited for."""
    fault = FAULTS[cell.fault]
    words = []
    for one in [h.run, *h.more]:
        if one is h.run and not fault.ends:
            continue
        one.end(BOUND)
        try:
            words.append(one.word())
        except AssertionError:
            words.append("")
    bench.await_ended()
    outside = cell.fault == "dockerd SIGKILL" and not inside
    end = time.monotonic() + 20
    while True:
        try:
            bench.host.wait_up(30)
            found = judge(
                bench.host, h.before, h.gone, h.lost, inside, not fault.ends and not inside
            )
        except (RollpinError, OSError) as e:
            found = Judgement("wrong", [str(e)])
        if found.outcome != "wrong" or time.monotonic() > end:
            break
        if outside and time.monotonic() > end - 12:
            break
        time.sleep(0.3)
    if outside:
        return Judgement("exception", found.faults) if found.outcome == "wrong" else found
    if found.outcome != "wrong":
        bad = [w for w in words if not _agrees(w, found.outcome, fault.name)]
        if h.gone and not inside:
            # Removed after the last check: whoever looks then says so, with the way back.
            bad = [w for w in bad if w != "restore-failed"]
        if len(words) > 1 and found.outcome == "live":
            bad = [] if "live" in words else words
        if bad:
            return Judgement("wrong", [f"the host is {found.outcome}, the verdict was {words}"])
    return found


def _agrees(word: str, outcome: str, fault: str) -> bool:
    if word in _WORDS[outcome]:
        return True
    # A controller that lost its host, or was interrupted before it had one, may know no more.
    lost = ("reboot", "power", "cut", "SIGINT", "SIGTERM", "SIGSTOP", "dockerd")
    return word in ("in doubt", "") and any(x in fault for x in lost)


def run(
    hosts: Sequence[Host],
    chosen: Sequence[Cell],
    done: Callable[[Result], None],
    end: float | None = None,
) -> None:
    """Every cell once, each host working through what is left. Cells of one layout stay together,
    for changing it takes a host's reset.
    """
    queue: SimpleQueue[Cell] = SimpleQueue()
    order = {name: n for n, name in enumerate(SCENARIOS)}
    for cell in sorted(chosen, key=lambda c: (FAULTS[c.fault].layout, order[c.boundary.scenario])):
        queue.put(cell)
    lock = threading.Lock()

    def work(host: Host) -> None:
        bench = Bench(host)
        while True:
            try:
                cell = queue.get_nowait()
            except Empty:
                break
            if end is not None and time.monotonic() > end:
                break
            result = hurt(bench, cell)
            with lock:
                done(result)
        bench.fresh()
        bench.gate.remove()

    threads = [threading.Thread(target=work, args=(h,)) for h in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Kept:
    """Results by commit, one JSON object a line: a sweep that was stopped goes on where it was."""

    def __init__(self, path: Path, of: str) -> None:
        self.path = path
        self.commit = of

    def load(self, any_commit: bool = False) -> dict[str, Result]:
        """The last result of every cell; of this commit alone, or of whichever came last."""
        out = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                value = json.loads(line)
                if value.pop("commit") == self.commit or any_commit:
                    value["faults"] = tuple(value["faults"])
                    out[value["key"]] = Result(**value)
        return out

    def add(self, result: Result) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"commit": self.commit, **asdict(result)}) + "\n")
