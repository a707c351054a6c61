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
    #NOTES#
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
    #UNSTART#
    await_gpus "$GPU_WAIT" "${_pids# }" || held
    #UNNAME#
    T=120
    #BACK#
    T=60
    #BACK_POLICIES#
    check
}
check() {
    T=60
    #CHECK#
    [ -z "$WRONG" ]
}
remove() {
    T=60
    #REMOVE#
    :
}
# A swap that was not begun changed nothing: then only what was staged is taken away, unless
# something of what served went away meanwhile.
TOUCHED=yes
if [ "$NOW" = restoring ] && [ ! -e "$DIR/touched" ]; then
    TOUCHED=no
    #LOST#
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
