"""One transaction on one host: arm, swap, verify, commit; or go back. The controller's side.

The scripts on the host are the transaction; this module starts them, follows them, renews the
lease and judges. Whatever it believes, the verdict is read from the host at the end.
"""

from __future__ import annotations

import dataclasses
import json
import secrets as random
from collections.abc import Callable
from dataclasses import dataclass

import gevent
from gevent.event import Event

from rollpin import remote_steps as steps
from rollpin import signals
from rollpin.docker_api import DockerApi
from rollpin.errors import HostError, Lost, Refused, StepFailed
from rollpin.health import Examiner, Health, StartFailed
from rollpin.places import STATE_DIR, release_dir
from rollpin.plan import Plan, Target
from rollpin.probe import Probe
from rollpin.remote import Remote, at_most, until
from rollpin.remote_steps import Superseded
from rollpin.stage import Staged, add, unstage
from rollpin.verdict import Verdict, Word
from rollpin.watch import Watch

LOOK = 30.0  # seconds that whoever takes over has at least to find the engine ready
SLACK = 300.0  # seconds that stops, waits and scripts may take beside the start-up deadline


class TakenOver(HostError):
    """Somebody else (a person, the guard) went back meanwhile."""


@dataclass
class Outcome:
    """What is known so far; the verdict is made of it."""

    stopped: float | None = None  # host uptime at the first stop
    ready: float | None = None  # host uptime when somebody served again
    warnings: tuple[str, ...] = ()

    @property
    def outage(self) -> float | None:
        if self.stopped is None or self.ready is None or self.ready < self.stopped:
            return None
        return self.ready - self.stopped


class Transaction:
    """`run`, or `resume` of one that is armed, ends with a verdict; it raises nothing that leaves
    the host in between.
    """

    def __init__(
        self,
        staged: Staged,
        remote: Remote,
        api: DockerApi,
        probe: Probe,
        say: Callable[[str], None],
        baseline: Health | None = None,
    ) -> None:
        """`baseline`: as the controller that armed it measured it."""
        self.staged = staged
        self.plan: Plan = staged.plan
        self.remote = remote
        self.api = api
        self.probe = probe
        self.say = say
        self.dir = release_dir(self.plan.service, self.plan.number)
        # For how long a lost host is asked again (docs/deadlines.md): going forward no longer than
        # the lease that nobody renews then; going back until the guard must have acted.
        self.patience = max(self.plan.lease, 15.0)
        self.insistence = max(self.plan.lease * 2, 30.0)
        self.examiner = Examiner(remote, api, probe, self.patience)
        self.baseline = baseline
        self.owner = staged.bound.transaction
        self.resumed = False
        self.arming = False
        self.over = Event()
        self.outcome = Outcome(warnings=self.plan.warnings)
        self.follow = (
            f"{remote.name}: follow it there: tail -f {self.dir}/logs/*.log; go back now:"
            f" sudo sh {STATE_DIR}/RESTORE-{self.plan.service}"
        )

    # The story.

    def run(self) -> Verdict:
        try:
            with signals.interruptible(self.follow):
                self._measure_baseline()
                self._arm()
        except (Refused, HostError, Lost) as e:
            return self._not_armed(str(e))
        except signals.Interrupted as e:
            return self._not_armed(f"interrupted by signal {e.number}")
        return self._carried_through()

    def resume(self) -> Verdict:
        """Takes the armed release over from a controller that is gone, then as `run`."""
        self.resumed = True
        self.owner = f"{self.owner}.{random.token_hex(4)}"
        quiet = self.plan.lease / 2
        self.say(f"watching for at most {quiet:.0f} s whether its controller renews the lease")
        try:
            with signals.interruptible(self.follow):
                said = steps.take_over(
                    self.remote, self.dir, self.owner, self.plan.by, self.plan.lease
                )
        except Refused as e:
            back = f"rollpin abort {self.remote.name} -i INVENTORY"
            return self._verdict(Word.REFUSED, f"{e}; from a controller: {back}")
        except HostError as e:
            return self._verdict(Word.REFUSED, f"it could not be taken over: {e}")
        except Lost as e:
            return self._verdict(
                Word.IN_DOUBT, f"lost while it was taken over ({e}). {self._who_acts()}"
            )
        except signals.Interrupted as e:
            return self._verdict(
                Word.IN_DOUBT,
                f"interrupted by signal {e.number} while it was taken over. {self._who_acts()}",
            )
        self.say(said)
        return self._carried_through()

    def _carried_through(self) -> Verdict:
        """From armed to the end."""
        renewal = gevent.spawn(self._renew)
        try:
            try:
                with signals.interruptible(self.follow):
                    if self.resumed:
                        self._prove()
                    self._swap()
                    health = self._verify()
                    self._commit(health)
            except signals.Interrupted as e:
                self.remote.drop()
                self.api.close()
                return self._go_back(f"interrupted by signal {e.number}")
            except StartFailed as e:
                return self._go_back(str(e), e.ours)
            except Superseded as e:
                return self._superseded(str(e))
            except (HostError, Lost) as e:
                return self._go_back(str(e))
            except Exception as e:  # a fault of ours must not leave the host to its guard
                return self._go_back(f"unexpected {type(e).__name__}: {e}")
            back = self.plan.kind == "rollback"
            to = (
                f"release {self.plan.target}" if self.plan.target else "what stood before release 1"
            )
            return self._verdict(Word.LIVE, f"rolled back to {to}" if back else "")
        finally:
            # One on its way is let end: nothing of this run goes on when its verdict is said.
            self.over.set()
            renewal.join(timeout=2)
            renewal.kill(block=False)

    def _prove(self) -> None:
        port = self.plan.baseline.port if self.plan.baseline else self.plan.port
        if port:
            self.probe.prove(port)

    def _measure_baseline(self) -> None:
        target = self.plan.baseline
        self._prove()
        if target is None:
            return
        self.baseline = self.examiner.examine(target)
        if self.baseline.good:
            self.say(f"baseline: {target.name} is good")
        else:
            self._warn(f"{target.name} was not good before: {'; '.join(self.baseline.failures())}")
        # For whoever takes over. The target may be somebody else's engine, with its key.
        known = {"target": target.to_json(), "health": self.baseline.to_json()}
        add(self.remote, self.dir, {"baseline.json": json.dumps(known)})

    def _arm(self) -> None:
        self.say("arming")
        self.arming = True
        answer = self.remote.run(f"exec sh {self.dir}/arm.sh", within=60)
        if answer.status != 0:
            raise Refused(f"not armed: {steps.said(answer.output)}")

    def _swap(self) -> None:
        stops = [s.container.name for s in self.plan.stops if s.was_running]
        self.say(f"swapping: stopping {', '.join(stops) or 'nothing'}")
        if not self._launch("swap"):
            self.say("the swap had been started before: following it")
        grace = max((s.grace for s in self.plan.stops), default=0.0)
        status = self._follow("swap", grace + SLACK, self.patience)
        self.outcome.stopped = steps.stopped_at(self.remote, self.dir)
        if status == 76:
            raise TakenOver("the release was taken back while it was swapped in")
        if status != 0:
            said = steps.tail(self.remote, self.dir, "swap", lines=1)
            raise StepFailed(f"swap.sh ended with status {status}: {said}", status)

    def _verify(self) -> Health:
        target = self.plan.target_health
        main = self.plan.main
        ident = main.id or self.staged.bound.container
        watch = Watch(self.plan, ident, self.remote, self.api, self.patience)

        def undisturbed() -> None:
            self._still_ours()
            watch.look()

        if target is None:
            self._warn("it shows no engine that rollpin knows: judged by its state alone")
            found = self.examiner.find(ident)
            if found is None or found["State"]["Status"] != "running":
                raise StartFailed("the container does not run")
            state = found["State"]
            watch.look()
            self.outcome.ready = self.examiner.uptime()
            return Health(ident, int(state["Pid"]), state["StartedAt"], 0, ())
        target = dataclasses.replace(target, container=ident, deadline=self._deadline(target))
        self.say(f"waiting for {target.name} to be ready (at most {target.deadline:g} s)")
        health = self.examiner.await_good(target, target.deadline, undisturbed, fresh=main.created)
        if not self.resumed:  # it may have been ready long before
            self.outcome.ready = health.uptime
        self.say(f"ready and generating; settling for {target.settle:g} s")
        last = self.examiner.settle(target, health, undisturbed)
        watch.look()
        self.outcome.warnings += steps.unwritten_caches(self.remote, self.plan.cache_dirs)
        return last

    def _deadline(self, target: Target) -> float:
        """Counts from the start, whoever waits; a moment to look is left in any case."""
        if not self.resumed:
            return target.deadline
        started = steps.started_at(self.remote, self.dir)
        gone = max(0.0, self.examiner.uptime() - started) if started is not None else 0.0
        return min(target.deadline, max(target.deadline - gone, LOOK))

    def _commit(self, health: Health) -> None:
        answer = self.remote.persist(
            f'exec sh {self.dir}/commit.sh "$@"',
            (health.container, str(health.pid), health.started_at, self.owner),
            within=120,
            tries=max(self.plan.lease, 30),
        )
        if answer.status == 76:
            raise TakenOver("the release was taken back before it could be committed")
        if answer.status == steps.TAKEN:
            raise Superseded(steps.said(answer.output))
        if answer.status != 0:
            raise StepFailed(f"commit.sh: {steps.said(answer.output)}", answer.status)

    # The other way.

    def _not_armed(self, reason: str) -> Verdict:
        """Armed or not is read from the host: an answer may have been lost on the way."""
        with signals.going_back(self.follow):
            try:
                if not unstage(self.staged, self.remote, reason):
                    return self._go_back(reason)
            except HostError as e:
                reason += f"; {e}"
            except Lost as e:
                if not self.arming:
                    return self._verdict(Word.REFUSED, f"{reason}; the host was lost ({e})")
                return self._verdict(
                    Word.IN_DOUBT,
                    f"{reason}; then the host was lost ({e}); nothing was stopped by this run."
                    f" If it is armed: {self._who_acts()}",
                )
        return self._verdict(Word.REFUSED, reason)

    def _go_back(self, reason: str, told: str | None = None) -> Verdict:
        """`told` is the reason for the host's journal, which everybody may read."""
        self.say(f"going back: {reason}")
        with signals.going_back(self.follow):
            try:
                return self._restore(reason, reason if told is None else told)
            except Lost as e:
                return self._verdict(
                    Word.IN_DOUBT,
                    f"{reason}; then the host was lost ({e}). {self._who_acts()}",
                )
            except Superseded as e:
                return self._superseded(f"{reason}; {e}")
            except HostError as e:
                return self._verdict(Word.RESTORE_FAILED, f"{reason}; {e}")

    def _superseded(self, reason: str) -> Verdict:
        """What another controller owns is left to it."""
        return self._verdict(
            Word.IN_DOUBT,
            f"{reason}, and goes on with it: this run touches nothing more. How it ends:"
            f" rollpin log {self.remote.name}",
        )

    def _restore(self, reason: str, told: str) -> Verdict:
        tries = self.insistence
        state = steps.state_of(self.remote, self.dir, tries)
        by_other = state in ("restoring", "restored")
        # A host that goes down takes its restore along: its next boot goes on, or this run does.
        said, cut = "", False
        for _ in until(tries, pause=1.0):
            if state in ("committed", "restored"):
                break
            try:
                self._launch("restore", told)
                status = self._follow("restore", 900, tries)
                cut = status in steps.CUT_OFF
                said = f"restore.sh ended with status {status}"
            except StepFailed as e:
                cut, said = e.status == steps.GOING_DOWN, str(e)
            state = steps.state_of(self.remote, self.dir, tries)
            if not cut:
                break
        if state == "committed":
            return self._verdict(Word.LIVE, f"{reason}; the commit had been decided before")
        if state != "restored" and cut:
            raise Lost(f"{self.remote.name}: {said}")
        if state != "restored":
            said += f": {steps.tail(self.remote, self.dir, 'restore')}"
            return self._verdict(Word.RESTORE_FAILED, f"{reason}; {said}")
        if steps.untouched(self.remote, self.dir, tries):
            return self._verdict(Word.REFUSED, reason)
        for told in steps.warned(self.remote, self.dir):
            self._warn(told)
        return self._verify_old(reason, by_other)

    def _verify_old(self, reason: str, by_other: bool) -> Verdict:
        """The old service against its baseline: what was good before must be good again."""
        target, baseline = self.plan.baseline, self.baseline
        if target is None or baseline is None:
            word = Word.RESTORED_UNVERIFIED if by_other else Word.RESTORED
            return self._verdict(word, reason)
        self.say(f"restored; waiting for {target.name} to be as good as before")
        try:
            # One that was removed meanwhile was made again, and has another id.
            found = Examiner(self.remote, self.api, self.probe, self.insistence).find(
                target.container
            )
            if found is None:
                again = f"{self.dir}/recreate-{target.container[:12]}.sh"
                raise StartFailed(f"was removed since; to make it again: sudo sh {again}")
            target = dataclasses.replace(target, container=str(found["Id"]))
            after = (
                self.examiner.await_good(target, target.deadline, lambda: None, fresh=False)
                if baseline.good
                else self.examiner.await_as_good(target, baseline)
            )
        except StartFailed as e:
            return self._verdict(Word.RESTORE_FAILED, f"{reason}; {target.name} is back, but {e}")
        worse = after.worse_than(baseline)
        if worse:
            return self._verdict(
                Word.RESTORE_FAILED, f"{reason}; {target.name} is worse than before: {worse[0]}"
            )
        self.outcome.stopped = self.outcome.stopped or steps.stopped_at(self.remote, self.dir)
        self.outcome.ready = after.uptime
        return self._verdict(Word.RESTORED, reason)

    def _launch(self, step: str, why: str = "") -> bool:
        transaction = self.staged.bound.transaction
        plan = self.plan
        return steps.launch(
            self.remote, self.dir, step, transaction, plan.guard, plan.by, why, self.owner
        )

    def _follow(self, step: str, within: float, tries: float) -> int:
        transaction = self.staged.bound.transaction
        return steps.follow(self.remote, self.dir, step, within, self.say, transaction, tries)

    def _who_acts(self) -> str:
        """Who goes back when this controller cannot."""
        if self.plan.guard:
            return (
                f"The guard there restores by itself at most {self.plan.lease:g} s after the last"
                f" renewal; see: {self.follow}"
            )
        return f"There is no guard (GUARD=off): nobody goes back by itself; see: {self.follow}"

    # What goes on beside it.

    def _renew(self) -> None:
        """Keeps the lease until the deadline of the whole; then the guard takes over."""
        target = self.plan.target_health
        left = SLACK * 2 + (target.deadline + target.settle if target else 0.0)
        left += max((s.grace for s in self.plan.stops), default=0.0)
        pause = max(0.5, self.plan.lease / 5)
        with at_most(left):
            while True:
                if self.over.wait(pause):
                    return
                try:
                    steps.renew(
                        self.remote,
                        self.dir,
                        self.staged.bound.transaction,
                        self.plan.lease,
                        self.owner,
                    )
                except (Lost, HostError):
                    continue

    def _still_ours(self) -> None:
        state = steps.owned(self.remote, self.dir, self.owner, self.patience)
        if state != "armed":
            raise TakenOver(f"the release is {state} meanwhile")

    def _warn(self, text: str) -> None:
        self.say(f"warning: {text}")
        self.outcome.warnings += (text,)

    def _verdict(self, word: Word, reason: str = "") -> Verdict:
        kept = word is not Word.REFUSED
        return Verdict(
            host=self.remote.name,
            service=self.plan.service,
            word=word,
            release=self.plan.number,
            digest=self.plan.digest,
            outage=self.outcome.outage,
            note=f"{self.dir}/NOTE.md" if kept else "",
            reason=reason,
            warnings=self.outcome.warnings,
            nothing_stopped=not any(s.was_running for s in self.plan.stops),
        )
