# Makes another controller the owner of release RELEASE, whose own is gone: takeover.sh OWNER WHO.
# Watches first, until nobody has renewed the lease for more than two renewal pauses (a pause is a
# fifth of it). Exits 0 taken over, also when run again; 70 no lease is known; 75 somebody owns it;
# 76 not armed (any more).
OWNER=$1 WHO=$2 LOG=
still_armed() { [ -e "$DIR/armed" ] || { say "release $RELEASE of $SERVICE is no longer armed"; exit 76; }; }
told() { sed -n "s/^$1=//p" "$RUN/transaction" 2>/dev/null; }
owned() {
    _left=$((${_renewed:-0} - $(cut -d. -f1 /proc/uptime)))
    say "$SERVICE release $RELEASE is owned by $(told by) since $(told since), who renewed the lease while it was watched ($((_left > 0 ? _left : 0)) s of it are left): that controller lives. End it there, or by going back: sudo sh $DIR/restore.sh"
    exit 75
}
# Nobody renewed it, and nobody else took it, since it was looked at first.
quiet() {
    read -r _renewed _tx <"$RUN/lease" 2>/dev/null && [ "$_renewed $_tx" = "$_until $TX" ] && [ "$(owner_now)" = "$_was" ]
}
still_armed
_was=$(owner_now)
[ "$_was" != "$OWNER" ] || exit 0
read -r _until _tx <"$RUN/lease" 2>/dev/null && [ "$_tx" = "$TX" ] && [ -n "$_was" ] ||
    { say "no lease of release $RELEASE of $SERVICE is known here (was the host rebooted?): it cannot go on. Go back: sudo sh $DIR/restore.sh"; exit 70; }
while quiet && [ "$(cut -d. -f1 /proc/uptime)" -lt $((_until - LEASE + LEASE / 2 + 1)) ]; do sleep 0.3; done
# One at a time: of two that watched, the second finds another owner.
exec 8<"$DIR"
flock -w 10 8 || { say "another controller is taking it over"; exit 75; }
still_armed
quiet || owned
if [ "$GUARD" != off ] && [ "$(cut -d. -f1 /proc/uptime)" -ge "$_until" ]; then
    say "the lease of release $RELEASE of $SERVICE is over: the guard goes back. See: tail -f $DIR/logs/restore.log"
    exit 75
fi
_from=$(told by)
own "$OWNER" || { say "$RUN cannot be written"; exit 73; }
# Whatever ended meanwhile took its lease away; this one must not stay.
[ -e "$DIR/armed" ] || [ -e "$DIR/restoring" ] || rm -f "$RUN/transaction" "$RUN/lease"
still_armed
journal resume "taken over from $_from"
say "taken over from $_from"
