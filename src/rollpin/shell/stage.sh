# Stages release RELEASE: everything slow and harmless. Prints `container ID` last.
# Exits 0 staged; 71 the cache dirs cannot be used; 72 docker create failed; 73 cannot write; 75 busy.
LOG=
# What is not there yet and will be made, innermost first: unstage.sh removes it again.
note_parents() {
    _p=$1
    while [ ! -d "$_p" ]; do printf '%s\n' "$_p" >>"$DIR/made"; _p=$(dirname "$_p"); done
}
# A release that some run staged and never armed, long ago.
clear_stale() {
    for _f in armed restoring restored committed rolling-back rolled-back; do
        [ -e "$SVC/releases/$1/$_f" ] && return
    done
    for _c in $(timeout -k 5 "$T" docker ps -aq --no-trunc --filter "label=rollpin.service=$SERVICE" --filter "label=rollpin.release=$1"); do
        [ "$(field "$_c" '{{.State.Status}}')" = created ] && run docker rm "$_c"
    done
    has_image "rollpin/$SERVICE:$1" && run docker rmi --no-prune "rollpin/$SERVICE:$1"
    case "$(readlink "$LINK" 2>/dev/null)" in "$SVC/releases/$1/"*) relink ;; esac
    if grep -qF "$SVC/releases/$1/restore.sh" "/etc/systemd/system/$BOOT" 2>/dev/null; then
        rm -f "$WANTS/$BOOT" "/etc/systemd/system/$BOOT"
    fi
    rm -rf "${SVC:?}/releases/$1"
}
# On one line: the last one is what the controller tells.
fail() { say "$(printf '%s' "$2" | tr '\n' ' ')"; exit "$1"; }
_said=$({ mkdir -p "$STATE" && : >>"$STATE/mutate.lock"; } 2>&1) || fail 73 "$STATE cannot be written: $_said"
# Whoever takes it back (the controller was interrupted) waits for the docker command in flight.
hold 60 "stage-$TX" || fail 75 "another script holds $STATE/mutate.lock"
_open=$(open_elsewhere) && fail 75 "an open transaction owns this host: $_open"
make_release_dir || fail 73 "$DIR cannot be made: $_said"
(umask 077 && printf '%s' "$SECRET_ENV" >"$DIR/env") || fail 73 "$DIR/env cannot be written"
true >"$DIR/made"
#STALE#
T=120
run docker tag "$REFERENCE" "rollpin/$SERVICE:$RELEASE" || fail 72 "the image could not be tagged"
_user=0:0
if [ -n "$IMAGE_USER" ]; then
    # A name means something only inside the image.
    # shellcheck disable=SC2016 # expanded in the container
    _user=$(timeout -k 5 120 docker run --rm --network none --entrypoint sh "$REFERENCE" -c 'echo "$(id -u):$(id -g)"') ||
        fail 71 "the image's user could not be read"
fi
#CACHES#
#PROBE#
set -a
# shellcheck disable=SC1091 # written above
. "$DIR/env"
set +a
#CREATE#
    { _err=$(cat "$DIR/logs/create.err"); fail 72 "docker create: $_err"; }
rm -f "$DIR/logs/create.err"
_id=$(printf '%s' "$_id" | tail -n 1)
echo "container $_id"
