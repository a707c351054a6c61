# Watches over release RELEASE and restores when nobody renews the lease. Exits 42 when its work
# is done; systemd starts it again after any other end.
done_with() { say "guard: $1"; exit 42; }
_grace=$(($(cut -d. -f1 /proc/uptime) + 60))
_wait=1
while :; do
    _now=$(cut -d. -f1 /proc/uptime)
    for _f in committed restored rolled-back; do
        # Whoever finished it may have died before clearing up.
        [ -e "$DIR/$_f" ] && { sh "$DIR/restore.sh" guard; done_with "release $RELEASE is $_f"; }
    done
    if [ -e "$DIR/armed" ] || [ -e "$DIR/restoring" ] || [ -e "$DIR/rolling-back" ]; then
        read -r _lease _tx <"$RUN/lease" 2>/dev/null || _lease=0
        [ "${_tx:-}" = "$TX" ] || _lease=0
        case $_lease in '' | *[!0-9]*) _lease=0 ;; esac
        if [ "$_now" -ge "$_lease" ]; then
            journal guard "the lease ended: restoring"
            if sh "$DIR/restore.sh" guard; then done_with "restored release $RELEASE"; fi
            say "guard: not restored yet; again in $_wait s"
            sleep "$_wait"
            [ "$_wait" -ge 60 ] || _wait=$((_wait * 2))
            continue
        fi
    elif [ "$_now" -ge "$_grace" ]; then
        # Puts back what an arm.sh that died had made; waits for one that is still at work.
        if sh "$DIR/restore.sh" guard; then done_with "release $RELEASE was never armed"; fi
        _grace=$((_now + 60))
    fi
    sleep 1
done
