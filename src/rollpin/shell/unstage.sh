# Takes back what stage.sh made, and what an arm.sh that did not end may have made. Never touches a
# release that is armed: exits 5 then.
LOG=
# Waits for an arm.sh that is still at work; ends a stage.sh whose controller has given it up.
if ! hold 2 unstage && [ "$(holder_role)" = "stage-$TX" ]; then evict; fi
hold 60 unstage || { say "another script holds $STATE/mutate.lock"; exit 1; }
if [ -d "$DIR" ] && [ "$(cat "$DIR/tx" 2>/dev/null)" != "$TX" ]; then
    # Another controller's stage bears this number: nothing of it is ours.
    rm -f "$RUN/holder"
    exit 0
fi
for _f in armed restoring restored committed rolling-back rolled-back; do
    [ -e "$DIR/$_f" ] && { say "release $RELEASE is $_f: not unstaged"; exit 5; }
done
[ ! -d /run/systemd/system ] || systemctl stop "rollpin-guard-$TX.service" 2>/dev/null
[ "$(readlink "$LINK" 2>/dev/null)" != "$DIR/restore.sh" ] || relink
[ ! -e "$DIR/notes-made" ] || while read -r _note; do rm -f "$STATE/displaced/$_note"; done <"$DIR/notes-made"
stand_down
# Its directory stays with what cannot be removed: the next stage finds that by it.
await_engine 60 || { say "what was staged stays until the next deploy of $SERVICE"; exit 1; }
for _c in $(timeout -k 5 "$T" docker ps -aq --no-trunc --filter "label=rollpin.service=$SERVICE" --filter "label=rollpin.release=$RELEASE"); do
    [ "$(field "$_c" '{{.State.Status}}')" = created ] && run docker rm "$_c"
done
for _c in $(timeout -k 5 "$T" docker ps -aq --filter "label=rollpin.probe=$TX"); do run docker rm -f "$_c"; done
has_image "rollpin/$SERVICE:$RELEASE" && run docker rmi --no-prune "rollpin/$SERVICE:$RELEASE"
[ "$REMOVE_IMAGE" != yes ] || run docker rmi "$REFERENCE" || say "the image stays"
[ ! -e "$DIR/made" ] || while IFS= read -r _d; do rmdir "$_d" 2>/dev/null; done <"$DIR/made"
rm -rf "$DIR"
rmdir "$SVC/releases" 2>/dev/null
[ ! -d "$SVC" ] || journal refused "$WHY"
exit 0
