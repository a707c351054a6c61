"""Small steps on the host that a transaction is made of: launch, follow, renew, look.

Each may be run again after a lost connection.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from rollpin.errors import HostError, Lost, Refused, StepFailed
from rollpin.remote import Remote, at_most

TAKEN = 79  # exit status of what meets another owner
GOING_DOWN = 78  # exit status where the host shuts down: nothing can be started any more
# A restore that ended so was not at its end: killed, or its host (5, or the signals) went down.
CUT_OFF = (5, 137, 143, -9, -15)

# Once, whoever asks again: the directory is the decision. A transient unit outlives its
# connection; without systemd a session of its own does.
_LAUNCH = r"""
dir=$1 step=$2 unit=$3 guard=$4 who=$5 why=$6 owner=$7
if [ -n "$owner" ] && [ -e "$dir/armed" ]; then
    now=$(sed -n 's/^owner=//p' /run/rollpin/transaction 2>/dev/null)
    [ "${now:-$owner}" = "$owner" ] || { sed -n 's/^by=//p' /run/rollpin/transaction; exit 79; }
fi
if [ "$step" = swap ]; then
    mkdir "$dir/logs/.launched" 2>/dev/null || { echo before; exit 0; }
else
    systemctl is-active --quiet "$unit.service" 2>/dev/null && exit 0
    rm -f "$dir/logs/restore.rc"
fi
if [ "$guard" != off ]; then
    systemd-run --quiet --collect --unit="$unit" --description="rollpin $step" \
        -p OOMScoreAdjust=-900 -p TimeoutStopSec=10 \
        /bin/sh "$dir/$step.sh" controller "$who" "$why" && exit 0
    [ "$step" = restore ] || { rmdir "$dir/logs/.launched"; exit 1; }
    # A session's process would hold a shutdown up; the boot unit goes on.
    [ "$(systemctl is-system-running 2>/dev/null)" != stopping ] ||
        { echo "the host goes down"; exit 78; }
fi
: >"$dir/logs/.no-unit"
setsid sh "$dir/$step.sh" controller "$who" "$why" </dev/null >/dev/null 2>&1 &
exit 0
"""

_FOLLOW = r"""
dir=$1 step=$2 from=$3 unit=$4
n=0
while [ $n -lt 20 ] && [ ! -e "$dir/logs/$step.rc" ]; do sleep 0.1; n=$((n + 1)); done
rc=$(cat "$dir/logs/$step.rc" 2>/dev/null)
if [ -z "$rc" ]; then
    # A script that was killed, or went down with its host, leaves no status: the files tell.
    if [ "$step" = swap ]; then
        [ -e "$dir/armed" ] || rc=76
    elif [ -e "$dir/restored" ] || [ -e "$dir/rolled-back" ]; then
        flock -w 5 "$dir/../../../mutate.lock" true &&
            rc=$(cat "$dir/logs/$step.rc" 2>/dev/null || echo 0)
    fi
fi
if [ -z "$rc" ] && [ ! -e "$dir/logs/.no-unit" ] && ! systemctl is-active --quiet "$unit"; then
    # The unit is gone: it has ended this moment, or was killed and will leave no status.
    sleep 0.5
    rc=$(cat "$dir/logs/$step.rc" 2>/dev/null)
    [ -n "$rc" ] || { systemctl is-active --quiet "$unit" || rc=137; }
fi
echo "rc=${rc:-none}"
tail -c "+$((from + 1))" "$dir/logs/$step.log" 2>/dev/null
exit 0
"""

_STATE = r"""
t=/run/rollpin/transaction
now=$(sed -n 's/^owner=//p' $t 2>/dev/null)
if [ -n "${2:-}" ] && [ -e "$1/armed" ] && [ "${now:-$2}" != "$2" ]; then
    echo "owned by $(sed -n 's/^by=//p' $t) since $(sed -n 's/^since=//p' $t)"
    exit 0
fi
for f in armed restoring restored rolling-back rolled-back committed; do
    [ -e "$1/$f" ] && { echo "$f"; exit 0; }
done
[ -d "$1" ] && echo staged || echo absent
"""

# Renews what is there and ours, never makes one: whatever ended meanwhile took its lease away, and
# the next transaction may have one of its own.
_RENEW = r"""
lease=/run/rollpin/lease
open() { [ -e "$dir/armed" ] || [ -e "$dir/restoring" ]; }
dir=$1
open && read -r until tx rest <"$lease" && [ "$tx" = "$2" ] || exit 76
now=$(sed -n 's/^owner=//p' /run/rollpin/transaction 2>/dev/null)
[ "${now:-$4}" = "$4" ] || exit 79
read -r up rest </proc/uptime
new=/run/rollpin/.lease.$$
echo "$((${up%%.*} + $3)) $2" >"$new" && mv -T "$new" "$lease" || exit 1
open || { rm -f "$lease"; exit 76; }
"""

_CACHES = r"""
for d; do
    [ -n "$(find "$d" -type f -print -quit 2>/dev/null)" ] || printf '%s\n' "$d"
done
"""


class Superseded(HostError):
    """Another controller took the transaction over: this one must not go on."""


def launch(
    remote: Remote,
    directory: str,
    step: str,
    transaction: str,
    guard: bool,
    who: str,
    why: str = "",
    owner: str = "",
) -> bool:
    """Starts swap.sh or restore.sh so that no lost connection ends it. False when the swap was
    started before. Raises StepFailed, Lost, Superseded.

    why: for the journal of a restore; a line of it, no secret. owner: refused when the open
    transaction is another's; "" asks nobody, as going back from another shell does.
    """
    unit = f"rollpin-{step}-{transaction}"
    # An expanded `%` or `$` would be systemd's: it is told as words, not as a command line.
    words = " ".join(why.split()).replace("$", "").replace("%", "")[:400]
    args = (directory, step, unit, "on" if guard else "off", who, words, owner)
    answer = remote.persist(_LAUNCH, args, within=30, tries=60)
    if answer.status == TAKEN:
        raise Superseded(f"{answer.output.strip() or 'another controller'} took it over")
    if answer.status != 0:
        said_ = f"{step}.sh could not be started: {answer.output.strip()[-200:]}"
        raise StepFailed(said_, answer.status)
    return "before" not in answer.output.split()


def follow(
    remote: Remote,
    directory: str,
    step: str,
    within: float,
    say: Callable[[str], None],
    transaction: str,
    tries: float = 120,
) -> int:
    """Says what the script logs until it ends; its exit status. Raises Lost when the host is
    gone for `tries` seconds, HostError when the script is not done within `within` seconds.
    """
    read = 0
    with at_most(within):
        while True:
            args = (directory, step, str(read), f"rollpin-{step}-{transaction}.service")
            answer = remote.persist(_FOLLOW, args, within=20, tries=tries)
            first, _, rest = answer.output.partition("\n")
            whole = rest[: rest.rfind("\n") + 1]
            read += len(whole.encode())
            for line in whole.splitlines():
                _, _, text = line.partition(" ")
                say(f"    {text}")
            if first != "rc=none" and first.startswith("rc="):
                return int(first[3:])
    raise HostError(f"{step}.sh has not ended within {within:g} s")


def state_of(remote: Remote, directory: str, tries: float = 30) -> str:
    """The release's state file: armed, committed, restoring, restored, …, staged or absent."""
    answer = remote.persist(_STATE, (directory,), within=15, tries=tries)
    return answer.output.strip() or "absent"


def owned(remote: Remote, directory: str, owner: str, tries: float = 30) -> str:
    """The release's state file, as seen by its owner. Raises Superseded for another's."""
    said_ = remote.persist(_STATE, (directory, owner), within=15, tries=tries).output.strip()
    if said_.startswith("owned "):
        raise Superseded(f"it is {said_}")
    return said_ or "absent"


def status_of(remote: Remote, directory: str, step: str) -> int | None:
    """Exit status of a script that has ended."""
    text = remote.persist('cat "$1" 2>/dev/null', (f"{directory}/logs/{step}.rc",)).output.strip()
    return int(text) if text.lstrip("-").isdigit() else None


def untouched(remote: Remote, directory: str, tries: float = 30) -> bool:
    """True when the swap was not begun: nothing was renamed, updated or stopped."""
    answer = remote.persist('[ -e "$1/touched" ]', (directory,), within=15, tries=tries)
    return answer.status == 1


def warned(remote: Remote, directory: str) -> list[str]:
    """What a restore did all the same: made a container again, with what was lost, for one."""
    script = 'cat "$1" 2>/dev/null'
    return remote.persist(script, (f"{directory}/logs/warnings",)).output.splitlines()


def stopped_at(remote: Remote, directory: str) -> float | None:
    """Host uptime at the first stop, as swap.sh noted it."""
    return _swap_time(remote, directory, "stopped")


def started_at(remote: Remote, directory: str) -> float | None:
    """Host uptime when everything was started, as swap.sh noted it."""
    return _swap_time(remote, directory, "started")


def _swap_time(remote: Remote, directory: str, name: str) -> float | None:
    script = f"sed -n 's/^{name}=//p' \"$1\" 2>/dev/null"
    text = remote.persist(script, (f"{directory}/logs/swap.times",)).output.strip()
    try:
        return float(text)
    except ValueError:
        return None


def tail(remote: Remote, directory: str, step: str, lines: int = 4) -> str:
    """The last lines of a script's log, on one line."""
    log = shlex.quote(f"{directory}/logs/{step}.log")
    text = remote.persist(f"tail -n {lines} {log} 2>/dev/null").output
    return " | ".join(x.partition(" ")[2] for x in text.splitlines())


def said(output: str) -> str:
    """The last thing that a script said, without the seconds since boot before it."""
    last = (output.strip().splitlines() or ["it said nothing"])[-1]
    time, _, text = last.partition(" ")
    return (text if time.replace(".", "", 1).isdigit() else last)[-600:]


def renew(remote: Remote, directory: str, transaction: str, lease: float, owner: str) -> None:
    """Raises HostError when there is nothing to renew any more, Superseded for another's."""
    args = (directory, transaction, str(max(1, round(lease))), owner)
    answer = remote.run(_RENEW, args, within=max(5.0, lease / 3))
    if answer.status == TAKEN:
        raise Superseded("another controller took the transaction over")
    if answer.status != 0:
        raise HostError("the transaction is not open any more")


def take_over(remote: Remote, directory: str, owner: str, who: str, lease: float) -> str:
    """Makes `owner` the owner of an armed release that nobody renews; what the host said. Raises
    Refused with the reason, Lost.
    """
    args = (f"{directory}/takeover.sh", owner, who)
    answer = remote.persist('exec sh "$@"', args, within=lease + 60, tries=30)
    if answer.status != 0:
        raise Refused(said(answer.output))
    return said(answer.output)


def unwritten_caches(remote: Remote, caches: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Warnings about declared cache mounts in which the engine wrote nothing."""
    if not caches:
        return ()
    try:
        empty = remote.persist(_CACHES, [host for host, _ in caches]).output.splitlines()
    except Lost:
        return ()
    return tuple(
        f"the cache mount {host}:{inside} was not written: what was meant for it is lost with the"
        " container"
        for host, inside in caches
        if host in empty
    )
