# Gives the displaced container NAME back while SERVICE stays, when there is room.
# Exits 0 given back; 3 refused, nothing touched; 1 failed.
LOG=
[ "$(id -u)" = 0 ] || { echo "run it as root: sudo sh $0"; exit 3; }
hold 10 giveback || { say "refused: another script holds $STATE/mutate.lock"; exit 3; }
_open=$(open_elsewhere) && { say "refused: an open transaction owns this host: $_open"; exit 3; }
for _f in armed restoring rolling-back; do
    [ ! -e "$DIR/$_f" ] || { say "refused: an open transaction owns this host: $DIR/$_f"; exit 3; }
done
await_engine 30 || exit 3
# The name of its restore note, whatever id it has by now.
NOTE=$STATE/displaced/$ID.md
if absent "$ID"; then
    say "$NAME ($ID) is gone from this engine"
    sh "$DIR/recreate-$(short "$ID").sh" held "$WHO" "" || { say "refused: it could not be made again"; exit 3; }
fi
ID=$(now_id "$ID")
[ -n "$ID" ] || { say "refused: the docker engine does not answer"; exit 3; }
if [ "$WAS_RUNNING" = yes ] && ! running "$ID"; then
    # What is not known may be in use.
    _all=$(timeout -k 5 "$T" docker ps -q --no-trunc) || { say "refused: the docker engine does not answer"; exit 3; }
    for _other in $_all; do
        [ -n "$GPUS" ] || break
        _is=$(field "$_other" '{{if or .HostConfig.DeviceRequests (eq .HostConfig.Runtime "nvidia")}}gpu{{else}}none{{end}}')
        [ -n "$_is" ] || { say "refused: whether $_other holds GPUs is not known"; exit 3; }
        [ "$_is" = gpu ] || continue
        _theirs=$(field "$_other" '{{range .HostConfig.DeviceRequests}}{{range .DeviceIDs}}{{.}} {{else}}all {{end}}{{end}}')
        _meet=no
        case "$GPUS ${_theirs:-all}" in
        # Anything but indexes (all, a UUID, a CDI name, what a runtime was told) may be any GPU.
        *[!0-9" "]*) _meet=yes ;;
        *) for _g in $GPUS; do case " $_theirs " in *" $_g "*) _meet=yes ;; esac; done ;;
        esac
        [ "$_meet" = no ] || {
            _who=$(field "$_other" '{{.Name}}')
            say "refused: no room, ${_who#/} holds its GPUs. To put everything back as it was before $SERVICE: sudo sh $DIR/restore.sh rollback"
            exit 3
        }
    done
    for _port in $PORTS; do
        _held=$(ss -Hltn "sport = :$_port") || { say "refused: whether port $_port is in use is not known (ss fails)"; exit 3; }
        if [ -n "$_held" ]; then
            say "refused: no room, its port $_port is in use. To put everything back as it was before $SERVICE: sudo sh $DIR/restore.sh rollback"
            exit 3
        fi
    done
    journal give-back "$NAME"
    T=120
    run docker start "$ID" || { journal give-back-failed "$NAME"; exit 1; }
    running "$ID" || { say "$NAME ended at once; see: docker logs $NAME"; exit 1; }
else
    journal give-back "$NAME"
fi
T=60
run docker update --restart "$POLICY" "$ID" || exit 1
sync_docker
rm -f "$NOTE" && sync "$STATE/displaced"
journal given-back "$NAME"
say "given back: $NAME"
exit 0
