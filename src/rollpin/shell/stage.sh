# Stages release RELEASE: everything slow and harmless. Prints `container ID` last.
# Exits 0 staged; 71 the cache dirs cannot be used; 72 docker create failed; 73 cannot write.
LOG=
# What is not there yet and will be made, innermost first: unstage.sh removes it again.
note_parents() {
    _p=$1
    while [ ! -d "$_p" ]; do printf '%s\n' "$_p" >>"$DIR/made"; _p=$(dirname "$_p"); done
}
fail() { say "$2"; exit "$1"; }
mkdir -p "$STATE" "$SVC/releases" && chmod 0755 "$STATE" || fail 73 "$STATE cannot be written"
mkdir "$DIR" && mkdir "$DIR/logs" && chmod 0755 "$DIR" "$DIR/logs" || fail 73 "$DIR cannot be made"
(umask 077 && printf '%s' "$SECRET_ENV" >"$DIR/env") || fail 73 "$DIR/env cannot be written"
: >"$DIR/made"
#STALE#
T=120
run docker tag "$REFERENCE" "rollpin/$SERVICE:$RELEASE" || fail 72 "the image could not be tagged"
_user=0:0
if [ -n "$IMAGE_USER" ]; then
    # A name means something only inside the image.
    _user=$(timeout -k 5 120 docker run --rm --network none --entrypoint sh "$REFERENCE" -c 'echo "$(id -u):$(id -g)"') ||
        fail 71 "the image's user could not be read"
fi
#CACHES#
#PROBE#
set -a
. "$DIR/env"
set +a
_id=$(timeout -k 5 120 #CREATE# 2>"$DIR/logs/create.err") || { _err=$(cat "$DIR/logs/create.err"); fail 72 "docker create: $_err"; }
rm -f "$DIR/logs/create.err"
_id=$(printf '%s' "$_id" | tail -n 1)
echo "container $_id"
