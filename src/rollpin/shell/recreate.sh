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
#VOLUMES#
say "+ $SHOWN"
_err=$DIR/logs/recreate.err
#EXPORTS#
#CREATE#
    { say "docker create: $(tr '\n' ' ' <"$_err")"; exit 1; }
rm -f "$_err"
_id=$(printf '%s' "$_id" | tail -n 1)
#NETWORKS#
sync_docker
_told="$NAME ($ID) was gone from this engine and was made again as $_id; lost: $LOSSES"
journal recreated "$_told"
warn "$_told"
exit 0
