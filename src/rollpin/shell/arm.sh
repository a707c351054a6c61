# Arms release RELEASE: from the last line on, whatever dies, this host goes back by itself.
# Exits 0 armed, 75 the host is owned by another transaction, 70 not armed.
hold 10 arm || { say "another script holds $STATE/mutate.lock"; exit 75; }
[ -d "$DIR/logs" ] || { echo "release $RELEASE is not staged any more"; exit 70; }
_open=$(open_elsewhere) && { say "an open transaction owns this host: $_open"; exit 75; }
for _f in armed committed restoring restored rolling-back rolled-back; do
    [ -e "$DIR/$_f" ] && { say "release $RELEASE is already $_f"; exit 70; }
done
mkdir -p "$RUN" && chmod 0755 "$RUN"
own "$TX" || exit 70
undo() {
    say "not armed: $1"
    journal arm-failed "$1"
    rm -f "$DIR/armed"
    relink
    [ ! -e "$DIR/notes-made" ] || while read -r _note; do rm -f "$STATE/displaced/$_note"; done <"$DIR/notes-made"
    [ "$GUARD" = off ] || systemctl stop "rollpin-guard-$TX.service" 2>/dev/null
    stand_down
    exit 70
}
journal arm "$WORDS"
if [ "$GUARD" != off ]; then
    start_guard || undo "the guard did not start"
    link_boot_unit || undo "the boot unit could not be linked"
fi
# Freed first by a restore that meets a full disk.
dd if=/dev/zero of="$STATE/.ballast" bs=1M count=8 2>/dev/null && sync "$STATE/.ballast" || undo "no room for the ballast in $STATE"
dd if=/dev/zero of="$BALLAST" bs=1M count=8 2>/dev/null && sync "$BALLAST" || undo "no room for the ballast in $DOCKER_ROOT"
data_root >"$DIR/data-root"
engine_run >"$DIR/engine-run"
true >"$DIR/notes-made"
mkdir -p "$STATE/displaced"
for _note in "$DIR"/displaced-*.md; do
    [ -e "$_note" ] || continue
    _name=${_note##*/displaced-}
    # A container that was displaced before keeps its first record.
    [ -e "$STATE/displaced/$_name" ] && continue
    cp "$_note" "$STATE/displaced/$_name" && chmod 0644 "$STATE/displaced/$_name" && sync "$STATE/displaced/$_name" &&
        echo "$_name" >>"$DIR/notes-made" || undo "the restore note $_name could not be written"
done
sync "$DIR/notes-made" "$STATE/displaced"
link_to "$DIR/restore.sh" || undo "$LINK could not be linked"
sync "$SVC" "$SVC/releases" "$DIR" "$DIR"/* 2>/dev/null || undo "the scripts could not be synced"
true >"$DIR/.arm" && sync "$DIR/.arm" && mv -T "$DIR/.arm" "$DIR/armed" && sync "$DIR" || undo "armed could not be written"
if [ "$GUARD" != off ] && ! systemctl is-active --quiet "rollpin-guard-$TX.service"; then undo "the guard is not running"; fi
say armed
