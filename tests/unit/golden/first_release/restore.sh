#!/bin/sh
# rollpin: restore.sh of glm53 release 1 (release)
# shellcheck disable=SC2034,SC2329,SC2015
set -u
STATE=/var/lib/rollpin
RUN=/run/rollpin
SERVICE=glm53
RELEASE=1
TX=glm53-1-0badcafe
WHO=ops@controller
ENGINE_ID=ENGINE:ID
DOCKER_ROOT=/var/lib/docker
BALLAST=/var/lib/docker/.rollpin-ballast
GUARD=on
LEASE=120
GPU_WAIT=60
ENGINE_WAIT=300
GPU_HOLDERS=1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a
KNOWN='1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c'
DOWN=1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a
WORDS='docker rename 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c glm53; docker update --restart no 1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a; docker stop -t 120 1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a; docker start 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c; docker update --restart unless-stopped 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c'
PAUSED=''

# Shared by every script of a release. sh, coreutils, util-linux and docker are enough; systemd
# and nvidia-smi are used where they are. The values above are the release's own.
trap '' HUP PIPE
umask 022
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
SVC=$STATE/$SERVICE
DIR=$SVC/releases/$RELEASE
LINK=$STATE/RESTORE-$SERVICE
BOOT=rollpin-boot-$SERVICE.service
WANTS=/etc/systemd/system/multi-user.target.wants
T=60

uptime_now() { read -r _u _ </proc/uptime; printf '%s' "$_u"; }
# To whoever watches, and to the release's log when there is one.
say() {
    printf '%s %s\n' "$(uptime_now)" "$*"
    [ -z "${LOG:-}" ] || printf '%s %s\n' "$(uptime_now)" "$*" >>"$LOG" 2>/dev/null
    return 0
}
# shellcheck disable=SC1003 # a double quote and a backslash
# A line break or another control character becomes a blank.
one_line() { printf '%s' "$*" | tr '\000-\037\177' ' '; }
# As the inside of a JSON string.
clean() { one_line "$*" | sed 's/[\\"]/\\&/g'; }
# Intent before, outcome after: a line is on the disk when this returns. A full disk must not stop
# a restore, so a journal that cannot be written is said, not fatal.
journal() {
    # A line that was torn by a power cut must not swallow this one.
    [ ! -s "$SVC/journal.jsonl" ] || [ "$(tail -c 1 "$SVC/journal.jsonl" 2>/dev/null | wc -l)" != 0 ] || echo 2>/dev/null >>"$SVC/journal.jsonl"
    _at=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    printf '{"at":"%s","uptime":%s,"service":"%s","release":%s,"transaction":"%s","by":"%s","event":"%s","detail":"%s"}\n' \
        "$_at" "$(uptime_now)" "$SERVICE" "$RELEASE" "$TX" "$(clean "$WHO")" "$1" "$(clean "$2")" \
        >>"$SVC/journal.jsonl" 2>/dev/null && sync "$SVC/journal.jsonl" 2>/dev/null ||
        say "the journal could not be written: $1 $2"
}
# Says the command, runs it within T seconds, says a status that is not 0.
run() {
    say "+ $*"
    _said=$(timeout -k 5 "$T" "$@" 2>&1)
    _rc=$?
    [ "$_rc" = 0 ] || say "status $_rc: $_said"
    return "$_rc"
}
# For the verdict of whoever runs this: what was done all the same, and is not as it was.
warn() {
    say "warning: $1"
    grep -qxF -e "$1" "$DIR/logs/warnings" 2>/dev/null || printf '%s\n' "$1" 2>/dev/null >>"$DIR/logs/warnings"
}
# A guard that tries again and again says each thing once.
journal_once() {
    case "$(tail -n 1 "$SVC/journal.jsonl" 2>/dev/null)" in
    *"\"release\":$RELEASE,"*"\"event\":\"$1\",\"detail\":\"$(clean "$2")\"}") ;;
    *) journal "$1" "$2" ;;
    esac
}
# The engine goes first then, and every command fails.
going_down() { [ "$(systemctl is-system-running 2>/dev/null)" = stopping ]; }
sync_docker() { sync -f "$DOCKER_ROOT" 2>/dev/null || sync; }
# One atomic rename is the decision; what must be true with it is on the disk before and after.
decide() {
    sync -f "$DIR" 2>/dev/null || sync
    mv -T "$DIR/$1" "$DIR/$2" 2>/dev/null || return 1
    sync "$DIR" 2>/dev/null || sync
}
link_to() {
    ln -s "$1" "$STATE/.link.$$" && mv -T "$STATE/.link.$$" "$LINK" && sync "$STATE"
}
# The newest committed release but this one; nothing when there is none.
newest_committed() {
    _best=
    for _c in "$SVC"/releases/*/committed; do
        [ -e "$_c" ] || continue
        _c=${_c%/committed}; _c=${_c##*/}
        [ "$_c" != "$RELEASE" ] && [ "$_c" -gt "${_best:-0}" ] && _best=$_c
    done
    printf '%s' "$_best"
}
# RESTORE-SERVICE leads to the release that serves when this one does not.
relink() {
    _serves=$(newest_committed)
    if [ -n "$_serves" ]; then link_to "$SVC/releases/$_serves/restore.sh"; else rm -f "$LINK"; fi
}
# What a reboot finds; on the disk when this returns.
link_boot_unit() {
    cp "$DIR/boot.service" "/etc/systemd/system/.$BOOT.$$" && sync "/etc/systemd/system/.$BOOT.$$" &&
        mv -T "/etc/systemd/system/.$BOOT.$$" "/etc/systemd/system/$BOOT" &&
        mkdir -p "$WANTS" && ln -sfn "../$BOOT" "$WANTS/$BOOT" && sync "$WANTS" /etc/systemd/system
}
start_guard() {
    systemd-run --quiet --collect --unit="rollpin-guard-$TX" --description="rollpin guard of $SERVICE release $RELEASE" \
        -p Restart=always -p RestartSec=1 -p RestartPreventExitStatus=42 -p SuccessExitStatus=42 \
        -p StartLimitIntervalSec=0 -p IgnoreOnIsolate=yes -p OOMScoreAdjust=-900 -p TimeoutStopSec=10 \
        /bin/sh "$DIR/guard.sh"
}
# Says the open transaction of the host, whose it is and what ends it; not this release's own, and
# status 1 when there is none.
open_elsewhere() {
    for _o in "$STATE"/*/releases/*/armed "$STATE"/*/releases/*/restoring "$STATE"/*/releases/*/rolling-back; do
        [ -e "$_o" ] && [ "${_o%/*}" != "$DIR" ] && { owner_of "${_o%/*}" "${_o##*/}"; return 0; }
    done
    return 1
}
owner_of() {
    _r=${1##*/} _s=${1%/releases/*} _s=${_s##*/} _whose=
    if [ "$(sed -n 's/^service=//p' "$RUN/transaction" 2>/dev/null) $(sed -n 's/^release=//p' "$RUN/transaction" 2>/dev/null)" = "$_s $_r" ]; then
        _whose=", by $(sed -n 's/^by=//p' "$RUN/transaction") since $(sed -n 's/^since=//p' "$RUN/transaction")"
        read -r _until _id <"$RUN/lease" 2>/dev/null && _left=$((_until - $(cut -d. -f1 /proc/uptime))) &&
            _whose="$_whose, with $((_left > 0 ? _left : 0)) s of its lease left"
    fi
    printf '%s' "$_s release $_r ($2)$_whose. Wait for it, or end it by going back: sudo sh $1/restore.sh (from a controller: rollpin abort; rollpin resume goes on with one whose controller is gone)"
}
# own OWNER: from here on it is OWNER's, with a whole lease before it. Atomic, one file after the other.
own() {
    printf 'id=%s\nservice=%s\nrelease=%s\nby=%s\nsince=%s\nseconds=%s\nowner=%s\n' \
        "$TX" "$SERVICE" "$RELEASE" "$(one_line "$WHO")" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$LEASE" "$1" >"$RUN/.transaction.$$" &&
        mv -T "$RUN/.transaction.$$" "$RUN/transaction" || return 1
    echo "$(($(cut -d. -f1 /proc/uptime) + LEASE)) $TX" >"$RUN/.lease.$$" && mv -T "$RUN/.lease.$$" "$RUN/lease"
}
# Which controller may go on: the one that armed (its owner is TX), or one that took it over since.
# Nothing is known after a reboot.
owner_now() { sed -n 's/^owner=//p' "$RUN/transaction" 2>/dev/null; }
pid_start() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
# hold SECONDS ROLE: the lock is held from here to the script's end, and by a docker command in
# flight: whoever takes over waits for that command too. Opening needs no free space.
hold() {
    mkdir -p "$STATE" "$RUN"
    # A redirection that fails with exec, or with `:`, ends the shell.
    true 9>>"$STATE/mutate.lock" || exit 73
    exec 9>>"$STATE/mutate.lock"
    flock -w "$1" 9 || return 1
    echo "$$ $(pid_start $$) $2" >"$RUN/holder" 2>/dev/null
    return 0
}
# Ends whoever holds the lock: the swap's unit with all it started, or the process noted.
evict() {
    if command -v systemctl >/dev/null && [ -d /run/systemd/system ]; then
        systemctl kill --signal=KILL "rollpin-swap-$TX.service" 2>/dev/null
    fi
    if read -r _pid _start _role <"$RUN/holder" 2>/dev/null && [ -n "$_start" ] &&
        [ "$_pid" != $$ ] && [ "$(pid_start "$_pid")" = "$_start" ]; then
        say "ending the script that holds the lock, process $_pid"
        kill -9 "$_pid" 2>/dev/null
    fi
}
field() { timeout -k 5 "$T" docker inspect --type container --format "$2" "$1" 2>/dev/null; }
has_image() { timeout -k 5 "$T" docker image inspect "$1" >/dev/null 2>&1; }
running() { [ "$(field "$1" '{{.State.Status}}')" = running ]; }
short() { printf '%.12s' "$1"; }
# Renaming to the present name fails, so look first.
rename() {
    [ "$(field "$1" '{{.Name}}')" = "/$2" ] || run docker rename "$1" "$2"
}
# The release's directory, whole or not at all; status 1 with the reason in _said.
make_release_dir() {
    _said=$({ mkdir -p "$SVC/releases" && chmod 0755 "$STATE"; } 2>&1) || return 1
    # Root runs what lies here, also at boot: whoever could write it would be root.
    for _d in "$STATE" "$SVC" "$SVC/releases"; do
        case $(stat -L -c '%u %A' "$_d" 2>&1) in
        0\ d????-??-?) ;;
        *) _said="$_d is not root's alone ($(stat -L -c '%U:%G %A' "$_d")); look what is in it, then: chown -R root:root $STATE; chmod -R go-w $STATE"; return 1 ;;
        esac
    done
    _said=$(mkdir "$DIR" 2>&1) || return 1
    _said=$({ printf '%s' "$TX" >"$DIR/tx" && mkdir "$DIR/logs" && chmod 0755 "$DIR" "$DIR/logs"; } 2>&1) && return 0
    rm -rf "${DIR:?}"
    return 1
}
holder_pid() { read -r _pid _rest <"$RUN/holder" 2>/dev/null && echo "$_pid"; }
holder_role() { read -r _pid _start _role <"$RUN/holder" 2>/dev/null && echo "$_role"; }
# A command that the daemon refuses and an absent container look alike; the daemon's own list,
# from a daemon that answers, tells them apart.
gone() { _ids=$(timeout -k 5 "$T" docker ps -aq --no-trunc) || return 1; case "$_ids" in *"$1"*) return 1 ;; esac; }
# Its id, or that of the container that was made again in its place; nothing when there is neither,
# and status 1 when that is not known.
now_id() {
    if [ -n "$(field "$1" '{{.Id}}')" ]; then printf '%s' "$1"; return 0; fi
    _made=$(timeout -k 5 "$T" docker ps -aq --no-trunc --filter "label=rollpin.was.$1" 2>/dev/null) || return 1
    printf '%s' "$_made" | head -n 1
}
now_or() { _n=$(now_id "$1"); printf '%s' "${_n:-$1}"; }
# No answer about a container is not its absence.
absent() { _n=$(now_id "$1") && [ -z "$_n" ] && gone "$1"; }
# Waits, bounded, for the engine that these containers live in. Another engine (other id or data
# root: an unmounted disk) must not be touched.
await_engine() {
    _end=$(($(cut -d. -f1 /proc/uptime) + $1))
    until _engine=$(timeout -k 2 10 docker info --format '{{.ID}} {{.DockerRootDir}}' 2>/dev/null) && [ "${_engine%% *}" != "" ]; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt "$_end" ] || { say "the docker engine does not answer"; return 1; }
        sleep 0.3
    done
    if [ "$_engine" != "$ENGINE_ID $DOCKER_ROOT" ]; then
        say "another engine answers: $_engine, not $ENGINE_ID $DOCKER_ROOT; nothing is touched"
        return 2
    fi
    # Docker 20.10 keeps its id in /etc/docker: an engine on an empty data root says the same.
    [ -s "$DIR/data-root" ] && [ "$(data_root)" != "$(cat "$DIR/data-root")" ] || return 0
    _ids=$(timeout -k 5 "$T" docker ps -aq --no-trunc) || return 1
    for _known in $KNOWN; do
        case "$_ids" in *"$_known"*) return 0 ;; esac
    done
    say "what is in $DOCKER_ROOT is not what was there: none of this release's containers, another directory; nothing is touched"
    return 2
}
# Tells one data root from another under the same path.
data_root() { stat -c '%i %W' "$DOCKER_ROOT/containers" 2>/dev/null; }
# Tells one run of the engine from the next; nothing where it keeps its pid elsewhere.
engine_run() { _p=$(cat /run/docker.pid 2>/dev/null) && printf '%s %s' "$_p" "$(pid_start "$_p")"; }
# Process ids on the GPUs that belong to the container; status 1 when the driver says nothing.
on_gpus() {
    _pids=$(timeout -k 2 20 nvidia-smi --query-compute-apps=pid --format=csv,noheader,nounits 2>/dev/null) || return 1
    for _p in $_pids; do
        grep -q "$1" "/proc/$_p/cgroup" 2>/dev/null && echo "$_p"
    done
    return 0
}
# Processes as a person finds and ends them.
held_by() {
    for _p in $1; do
        printf ' process %s (%s; to end it: kill -9 %s)' "$_p" "$(one_line "$(cat "/proc/$_p/comm" 2>/dev/null)")" "$_p"
    done
}
# Waits, bounded, until none of the processes is on a GPU any more; else HELD names them.
await_gpus() {
    [ -n "$2" ] || return 0
    _end=$(($(cut -d. -f1 /proc/uptime) + $1))
    while :; do
        _now=$(timeout -k 2 20 nvidia-smi --query-compute-apps=pid --format=csv,noheader,nounits 2>/dev/null) ||
            { say "nvidia-smi fails: not waited for the GPUs"; return 0; }
        _left=
        for _p in $2; do
            for _n in $_now; do [ "$_p" = "$_n" ] && _left="$_left $_p"; done
        done
        [ -n "$_left" ] || return 0
        [ "$(cut -d. -f1 /proc/uptime)" -lt "$_end" ] || { HELD=$(held_by "$_left"); say "still on the GPUs after $1 s:$HELD"; return 1; }
        sleep 0.2
    done
}
# Removes what watched over the transaction. Deleting the unit files needs no daemon-reload, which
# could take NVML away from running containers.
stand_down() {
    if grep -qF "$DIR/restore.sh" "/etc/systemd/system/$BOOT" 2>/dev/null; then
        rm -f "$WANTS/$BOOT" "/etc/systemd/system/$BOOT"
    fi
    _owner=$(sed -n 's/^id=//p' "$RUN/transaction" 2>/dev/null)
    if [ "${_owner:-$TX}" = "$TX" ]; then
        # Without an owner (after a reboot) what is left there is nobody's.
        rm -f "$RUN/transaction" "$RUN/lease" "$RUN/stopping" "$STATE/.ballast" "$BALLAST"
    fi
    rm -f "$RUN/holder"
    sync "$STATE" 2>/dev/null || sync
}

# Back, from wherever it stands; may be run again and again. Run by the controller, the guard, the
# boot unit and people:   sudo sh restore.sh
# While release RELEASE is open it takes it back; once it is committed, and nothing newer was taken
# back, it rolls it back by hand (`restore.sh rollback` does so in any case).
# Exits 0 done; 1 not everything could be put back (what is left is said); 2 usage; 3 not this
# release's turn; 4 the docker engine is not the one these containers live in; 5 the
# host goes down in the middle: its next boot goes on.
MODE=${1:-person} WHY=
LOG=$DIR/logs/restore.log
# Its exit status is for the controller that started it; another run beside it writes none.
finish() { _rc=$?; [ "$MODE" = controller ] || return 0; { echo "$_rc" >"$DIR/logs/.restore.rc" && mv -T "$DIR/logs/.restore.rc" "$DIR/logs/restore.rc"; } 2>/dev/null; }
trap finish EXIT
case $MODE in
person | rollback) WHO=${SUDO_USER:-$(id -un)}@$(uname -n) ;;
controller) WHO=${2:-$WHO} WHY=${3:-} ;;
guard | boot) WHO=$MODE@$(uname -n) ;;
*) echo "usage: sudo sh $DIR/restore.sh"; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "run it as root: sudo sh $DIR/restore.sh"; exit 2; }
person() { [ "$MODE" = person ] || [ "$MODE" = rollback ]; }
# Of a commit that was cut off: what it brought back is displaced no more.
notes() {
    :
}
newest=$RELEASE taken_back=
for _d in "$SVC"/releases/*/; do
    _n=${_d%/}; _n=${_n##*/}
    [ "$_n" -gt "$RELEASE" ] 2>/dev/null || continue
    for _f in armed restoring committed rolling-back; do
        [ -e "$_d$_f" ] && [ "$_n" -gt "$newest" ] && newest=$_n
    done
    for _f in restored rolled-back; do
        [ -e "$_d$_f" ] && [ "$_n" -gt "${taken_back:-0}" ] && taken_back=$_n
    done
done
if [ "$newest" != "$RELEASE" ]; then
    say "release $RELEASE is not the newest of $SERVICE: $newest is. Run: sudo sh $SVC/releases/$newest/restore.sh"
    person || exit 0
    exit 3
fi
# The decision. An open release is decided before the lock is asked for: from then on no swap and
# no commit can go on. All else is decided under the lock.
AFTER=restored NOW=restoring
if [ -e "$DIR/restored" ] || [ -e "$DIR/rolled-back" ]; then
    say "release $RELEASE is already taken back"
    hold 60 restore && stand_down
    exit 0
elif [ -e "$DIR/rolling-back" ]; then
    AFTER=rolled-back NOW=rolling-back
elif [ -e "$DIR/committed" ]; then
    hold 60 restore || { say "another script holds $STATE/mutate.lock; try again"; exit 3; }
    notes
    person || { stand_down; exit 0; }
    if [ "$MODE" = person ] && [ -n "$taken_back" ]; then
        say "nothing is open: release $taken_back was taken back and release $RELEASE serves $SERVICE. To roll release $RELEASE back too: sudo sh $DIR/restore.sh rollback"
        exit 3
    fi
    _open=$(open_elsewhere) && { say "an open transaction owns this host: $_open"; exit 3; }
    say "release $RELEASE is committed: rolling it back by hand"
    # Whatever ends this shell from here on, the guard or the next boot finishes it.
    if [ -d /run/systemd/system ] && [ "$GUARD" != off ]; then
        link_boot_unit || { say "the boot unit could not be linked; nothing was stopped"; exit 1; }
    fi
    decide committed rolling-back || { say "somebody else decided; run it again"; exit 3; }
    AFTER=rolled-back NOW=rolling-back
    if [ -d /run/systemd/system ] && [ "$GUARD" != off ]; then
        start_guard || say "no guard watches over this; the next boot would finish it"
    fi
elif [ -e "$DIR/armed" ]; then
    decide armed restoring || [ -e "$DIR/restoring" ] || [ -e "$DIR/restored" ] ||
        { say "it was committed this moment; run it again to roll it back"; exit 3; }
elif [ ! -e "$DIR/restoring" ]; then
    hold 60 restore || { say "another script holds $STATE/mutate.lock; try again"; exit 1; }
    # An arm.sh may have been at work until this moment.
    [ ! -e "$DIR/armed" ] || { say "release $RELEASE was armed this moment; run it again"; exit 1; }
    [ ! -e "$DIR/notes-made" ] || while read -r _note; do rm -f "$STATE/displaced/$_note"; done <"$DIR/notes-made"
    [ "$(readlink "$LINK" 2>/dev/null)" != "$DIR/restore.sh" ] || relink
    stand_down
    _serves=$(newest_committed)
    journal_once refused "never armed, says $MODE"
    say "release $RELEASE never stopped anything: nothing to restore${_serves:+; release $_serves serves $SERVICE. To roll that back: sudo sh $SVC/releases/$_serves/restore.sh rollback}"
    exit 0
fi
# Going back goes on to its end.
trap '' INT TERM
# A swap or commit that hangs is ended; another restore does the same work and is waited for.
if [ "$(holder_pid)" != $$ ] && ! hold 3 restore; then
    if [ "$(holder_role)" = restore ]; then
        say "another restore is at work: waiting for it"
        hold 600 restore || { evict; hold 300 restore || { say "the lock stays held"; exit 1; }; }
    else
        evict
        hold 300 restore || { say "the lock stays held"; exit 1; }
    fi
fi
[ -e "$DIR/$AFTER" ] && { say "release $RELEASE was taken back meanwhile"; stand_down; exit 0; }
rm -f "$STATE/.ballast" "$BALLAST"
case "$(tail -n 1 "$SVC/journal.jsonl" 2>/dev/null)" in
*"\"release\":$RELEASE,"*'"event":"restore-failed"'*) ;;
*) journal "$NOW" "by $MODE${WHY:+: $WHY}" ;;
esac
WRONG=
wrong() { say "NOT DONE: $1"; WRONG="$WRONG; $1"; }
await_engine "$ENGINE_WAIT"
_found=$?
[ "$_found" = 0 ] || ! going_down || { say "the host goes down: its next boot goes on"; exit 5; }
case $_found in
1) journal_once restore-failed "the docker engine does not answer"; say "restore-failed: start docker, then run: sudo sh $DIR/restore.sh"; exit 1 ;;
2) journal_once restore-failed "another docker engine"; say "restore-failed: is the disk of $DOCKER_ROOT mounted? Then run: sudo sh $DIR/restore.sh"; exit 4 ;;
esac
if [ "$MODE" = boot ]; then
    # The driver may come up after docker.
    _end=$(($(cut -d. -f1 /proc/uptime) + GPU_WAIT))
    until timeout -k 2 20 nvidia-smi -L >/dev/null 2>&1; do
        [ "$(cut -d. -f1 /proc/uptime)" -lt "$_end" ] || { say "nvidia-smi fails: going on without it"; break; }
        sleep 1
    done
fi
# up ID NOW: it runs; or it is paused, as it was, when the swap did not come to its stop.
up() {
    running "$2" && return 0
    case " $PAUSED " in *" $1 "*) [ "$(field "$2" '{{.State.Status}}')" = paused ] ;; *) return 1 ;; esac
}
# back ID NAME WAS-RUNNING WORDS: under its name again, and running if it was. One that somebody
# removed is made again from its record, here, on the engine that it lived in.
back() {
    if absent "$1"; then
        _make=$DIR/recreate-$(short "$1").sh
        say "$2 ($1) is gone from this engine; it was: $4"
        sh "$_make" held "$WHO" "$LOG" ||
            { wrong "$2 is gone and could not be made again ($(tail -n 1 "$LOG" | cut -d' ' -f2-)): sudo sh $_make"; return 1; }
    fi
    _now=$(now_id "$1")
    [ -n "$_now" ] || { wrong "nothing is known of $2: docker ps -a"; return 1; }
    rename "$_now" "$2" || wrong "$2 could not be renamed back: docker rename $_now $2"
    [ "$3" = yes ] || return 0
    up "$1" "$_now" || run docker start "$_now" || wrong "$2 could not be started: docker start $2"
}
# going ID: the stop of one that was run with --rm deletes it, a moment later.
going() {
    _end=$(($(cut -d. -f1 /proc/uptime) + 30))
    while [ "$(cut -d. -f1 /proc/uptime)" -lt "$_end" ]; do
        case $(field "$1" '{{.State.Status}}') in
        exited | dead | removing) sleep 0.2 ;;
        *) return 0 ;;
        esac
    done
}
# lost ID NAME: it served until now, and was removed while nobody took its name, or went down with
# its engine, which has been started again since. One that was stopped by hand stays as it is.
lost() {
    if absent "$1"; then
        [ -z "$(field "$2" '{{.Id}}')" ] || return 0
    else
        up "$1" "$(now_id "$1")" && return 0
        [ -s "$DIR/engine-run" ] && [ "$(engine_run)" != "$(cat "$DIR/engine-run")" ] || return 0
    fi
    say "$2 went away meanwhile"
    true 2>/dev/null >"$DIR/touched" || say "$DIR/touched could not be written"
    TOUCHED=yes
}
# policy ID POLICY NAME
policy() {
    _now=$(now_id "$1")
    # One that is gone was said already.
    [ -n "$_now" ] || return 0
    run docker update --restart "$2" "$_now" || wrong "the policy of $3 could not be set: docker update --restart $2 $3"
}
# runs ID NAME
runs() {
    _now=$(now_id "$1")
    up "$1" "${_now:-$1}" || wrong "$2 does not run: docker start $2"
}
# A stop in flight would end a container that was just started: join it first.
if [ -e "$DIR/touched" ] && [ -e "$RUN/stopping" ] && [ "$NOW" = restoring ] && [ -n "$DOWN" ]; then
    T=60
    # shellcheck disable=SC2086 # ids are words
    run docker stop -t 10 $DOWN || say "going on"
fi
# What runs beside it may have room enough: it is started in any case.
held() {
    warn "memory stays held on the GPUs by$HELD"
    journal_once gpu-memory-held "by$HELD"
}
put_back() {
    WRONG=
    T=60
    _pids=
    if ! absent 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c; then
        _s=$(now_or 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c)
        _pids="$_pids $(on_gpus "$_s")"
        run docker update --restart no "$_s" || wrong 'glm53 could not be stopped: docker stop glm53'
        # A failed release gets a short grace, a committed one is drained.
        if [ "$NOW" = restoring ]; then _g=10; else _g=120; fi
        T=$((_g + 30)); run docker stop -t "$_g" "$_s" || wrong 'glm53 could not be stopped: docker stop glm53'; T=60
    fi
    await_gpus "$GPU_WAIT" "${_pids# }" || held
    absent 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c || rename "$(now_or 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c)" glm53.r1 || wrong 'glm53 could not be renamed: docker rename glm53 glm53.r1'
    T=120
    back 1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a glm53-pp4 yes 'lmsysorg/sglang:nightly-dev-20260828 python3 -m sglang.launch_server --model-path /data/hf_models/GLM-5.3-NVFP4 --tp-size 2 --pp-size 4 --disable-flashinfer-autotune --host 0.0.0.0 --port 30000'
    T=60
    policy 1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a unless-stopped glm53-pp4
    check
}
check() {
    T=60
    runs 1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a glm53-pp4
    [ -z "$WRONG" ]
}
remove() {
    T=60
    if [ "$NOW" = restoring ] && ! absent 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c; then
        _s=$(now_or 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c)
        # An engine logs its keys: for root alone. A log that hangs must not hold the lock.
        (umask 077; timeout -k 5 60 docker logs --timestamps --tail 20000 "$_s" >"$DIR/logs/engine.log" 2>&1 9>&-) || say "the log of the failed container was not kept"
        (umask 077; field "$_s" '{{json .State}}' >"$DIR/logs/engine.state.json")
        run docker rm --volumes "$_s" || wrong 'docker rm glm53.r1'
    fi
    if [ "$NOW" = restoring ] && has_image rollpin/glm53:1; then
        run docker rmi --no-prune rollpin/glm53:1 || say 'the local tag stays'
    fi
    :
}
# A swap that was not begun changed nothing: then only what was staged is taken away, unless
# something of what served went away meanwhile.
TOUCHED=yes
if [ "$NOW" = restoring ] && [ ! -e "$DIR/touched" ]; then
    TOUCHED=no
    lost 1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a glm53-pp4
fi
if [ "$TOUCHED" = yes ]; then
    put_back
    remove
    # An engine that went away in the middle, or only now, took some of it along.
    if [ -n "$WRONG" ] || ! check; then
        say "once more"
        await_engine "$ENGINE_WAIT" && put_back && remove
    fi
else
    remove
fi
sync_docker
if [ -n "$WRONG" ]; then
    going_down && { say "the host goes down: its next boot goes on"; exit 5; }
    journal_once restore-failed "${WRONG#; }"
    say "restore-failed:${WRONG#;}"
    say "when that is put right, run: sudo sh $DIR/restore.sh"
    exit 1
fi
relink
[ ! -e "$DIR/notes-made" ] || while read -r _note; do rm -f "$STATE/displaced/$_note"; done <"$DIR/notes-made"
# A rollback that is taken back displaces again what it had brought back.
for _note in "$DIR"/returned-*.md; do
    [ ! -e "$_note" ] || cp "$_note" "$STATE/displaced/${_note##*/returned-}" || say "the restore note $_note could not be put back"
done
decide "$NOW" "$AFTER" || [ -e "$DIR/$AFTER" ] || { say "$AFTER could not be written"; exit 1; }
journal "$AFTER" "release $RELEASE was taken back by $MODE"
stand_down
say "$AFTER"
exit 0
