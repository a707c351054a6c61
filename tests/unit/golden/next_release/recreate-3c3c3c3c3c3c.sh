#!/bin/sh
# rollpin: recreate.sh of glm53 release 2 (release)
# shellcheck disable=SC2034,SC2329,SC2015
set -u
STATE=/var/lib/rollpin
RUN=/run/rollpin
SERVICE=glm53
RELEASE=2
TX=glm53-2-0badcafe
WHO=ops@controller
ENGINE_ID=ENGINE:ID
DOCKER_ROOT=/var/lib/docker
BALLAST=/var/lib/docker/.rollpin-ballast
GUARD=on
LEASE=120
GPU_WAIT=60
ENGINE_WAIT=300
GPU_HOLDERS=3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c
KNOWN='3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c 4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d'
DOWN=3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c
WORDS='docker rename 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c glm53.r1; docker rename 4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d glm53; docker update --restart no 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c; docker stop -t 120 3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c; docker start 4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d; docker update --restart unless-stopped 4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d4d'
ID=3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c
NAME=glm53
IMAGE=lmsysorg/sglang@sha256:d6e7288627be8b02be88e4bba38e73f6d50e2826869f753c13a4c4385ab3eda9
IMAGE_ID=sha256:9999999999999999999999999999999999999999999999999999999999999999
PULL=''
SHOWN='docker create --name glm53.r1 --label rollpin.release=1 --label rollpin.service=glm53 --label rollpin.was.3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c=removed --network host --restart no --runtime runc --gpus all lmsysorg/sglang@sha256:d6e7288627be8b02be88e4bba38e73f6d50e2826869f753c13a4c4385ab3eda9'
LOSSES='what it wrote into itself (how much is not known: not looked at); its log'

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

# Makes NAME (ID) again, which somebody removed from this engine: from its record, but for LOSSES.
# It is stopped then and has restart policy `no`: who called this starts it. By hand:   sudo sh FILE
# held WHO LOG: the caller holds the lock. by WHO: a controller, for a rollback.
# Exits 0 it is there; 1 it could not be made; 3 refused; 4 not the engine that it lived in.
LOG=
[ "$(id -u)" = 0 ] || { echo "run it as root: sudo sh $0"; exit 3; }
if [ "${1:-}" = held ]; then
    WHO=$2 LOG=$3
else
    WHO=${SUDO_USER:-$(id -un)}@$(uname -n)
    [ "${1:-}" != by ] || WHO=$2
    hold 60 recreate || { say "refused: another script holds $STATE/mutate.lock"; exit 3; }
    _open=$(open_elsewhere) && { say "refused: an open transaction owns this host: $_open"; exit 3; }
fi
await_engine 30 || exit 4
if [ -n "$(now_id "$ID")" ]; then say "$NAME is there"; exit 0; fi
gone "$ID" || { say "the docker engine does not answer"; exit 1; }
image_id() { timeout -k 5 "$T" docker image inspect --format '{{.Id}}' "$1" 2>/dev/null; }
_ref=$IMAGE
if [ "$(image_id "$_ref")" != "$IMAGE_ID" ]; then
    if [ "$(image_id "$IMAGE_ID")" = "$IMAGE_ID" ]; then
        _ref=$IMAGE_ID
    else
        [ -n "$PULL" ] || { say "its image $IMAGE ($IMAGE_ID) is gone too, and no registry is known to have it"; exit 1; }
        say "its image is gone too"
        T=3600
        run docker pull --quiet "$PULL" || { say "to try again: docker pull $PULL"; exit 1; }
        T=60
        _came=$(image_id "$PULL")
        [ "$_came" = "$IMAGE_ID" ] || { say "what arrived is $_came, not $IMAGE_ID"; exit 1; }
        # The name that it had, unless it is another image's now.
        case $IMAGE in
        *@* | sha256:*) ;;
        *) [ -n "$(image_id "$IMAGE")" ] || run docker tag "$PULL" "$IMAGE" ;;
        esac
        [ "$(image_id "$IMAGE")" = "$IMAGE_ID" ] && _ref=$IMAGE || _ref=$PULL
    fi
fi
# volume NAME PATH: an anonymous one, which docker makes anew, and empty, when it is gone.
volume() {
    timeout -k 5 "$T" docker volume inspect "$1" >/dev/null 2>&1 || LOSSES="$LOSSES; what was in the anonymous volume of $2"
}
say "+ $SHOWN"
_err=$DIR/logs/recreate.err
_id=$(timeout -k 5 300 docker create --name glm53.r1 --label rollpin.release=1 --label rollpin.service=glm53 --label rollpin.was.3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c=removed --network host --restart no --runtime runc --gpus all "$_ref"  2>"$_err") ||
    { say "docker create: $(tr '\n' ' ' <"$_err")"; exit 1; }
rm -f "$_err"
_id=$(printf '%s' "$_id" | tail -n 1)
sync_docker
_told="$NAME ($ID) was gone from this engine and was made again as $_id; lost: $LOSSES"
journal recreated "$_told"
warn "$_told"
exit 0
