# Takes back what stage.sh made. Never touches a release that was armed.
LOG=
for _f in armed restoring restored committed rolling-back rolled-back; do
    [ -e "$DIR/$_f" ] && { say "release $RELEASE is $_f: not unstaged"; exit 1; }
done
for _c in $(timeout -k 5 "$T" docker ps -aq --no-trunc --filter "label=rollpin.service=$SERVICE" --filter "label=rollpin.release=$RELEASE"); do
    [ "$(field "$_c" '{{.State.Status}}')" = created ] && run docker rm "$_c"
done
for _c in $(timeout -k 5 "$T" docker ps -aq --filter label=rollpin.probe=1); do run docker rm -f "$_c"; done
timeout -k 5 "$T" docker image inspect "rollpin/$SERVICE:$RELEASE" >/dev/null 2>&1 && run docker rmi --no-prune "rollpin/$SERVICE:$RELEASE"
[ "$REMOVE_IMAGE" = yes ] && { run docker rmi "$REFERENCE" || say "the image stays"; }
while IFS= read -r _d; do rmdir "$_d" 2>/dev/null; done <"$DIR/made" 2>/dev/null
rm -rf "$DIR"
rmdir "$SVC/releases" 2>/dev/null
journal refused "$WHY"
exit 0
