# For good: release RELEASE keeps the service. commit.sh ID PID STARTED-AT [OWNER], as verified.
# Exits 0 committed; 75 busy; 76 no longer armed; 77 the container is not the verified one any
# more; 78 a restart policy could not be set; 79 another controller took the transaction over.
OWNER=${4:-$TX}
LOG=$DIR/logs/commit.log
hold 10 commit || { say "another script holds $STATE/mutate.lock"; exit 75; }
# What displaced before and is back needs no restore note any more.
notes() {
    #NOTES#
    :
}
[ -e "$DIR/committed" ] && { say "already committed"; notes; exit 0; }
still_armed() { [ -e "$DIR/armed" ] || { say "release $RELEASE is no longer armed: it was restored"; exit 76; }; }
same() {
    [ "$(field "$1" '{{.State.Status}} {{.State.Pid}} {{.State.StartedAt}}')" = "running $2 $3" ] ||
        { say "container $1 is not the one that was verified"; exit 77; }
}
# No owner at all is a host that rebooted: then the process is not the verified one.
still_ours() {
    _owner=$(owner_now)
    [ "${_owner:-$OWNER}" = "$OWNER" ] && return 0
    say "release $RELEASE was taken over by $(sed -n 's/^by=//p' "$RUN/transaction")"
    exit 79
}
still_armed
still_ours
same "$1" "$2" "$3"
journal commit "$WORDS"
#POLICIES#
same "$1" "$2" "$3"
# A start after this one is somebody else's.
printf '%s %s\n' "$1" "$3" >"$DIR/verified" || say "$DIR/verified could not be written"
sync_docker
still_ours
decide armed committed || { say "release $RELEASE is no longer armed: it was restored"; exit 76; }
# The journal needs some of the room that was kept for a restore.
rm -f "$STATE/.ballast"
journal committed "release $RELEASE serves $SERVICE"
notes
stand_down
[ "$GUARD" = off ] || systemctl stop "rollpin-guard-$TX.service" 2>/dev/null
say "committed"
# prune ID NAME IMAGE TAG...: what is not as it was planned stays.
prune() {
    [ "$(field "$1" '{{.Name}} {{.State.Running}} {{index .Config.Labels "rollpin.service"}}')" = "/$2 false $SERVICE" ] ||
        { say "$2 is not what it was: kept"; return 0; }
    _image=$(field "$1" '{{.Image}}')
    run docker rm "$1" || return 0
    _name=$2 _reference=$3
    shift 3
    for _tag; do
        has_image "$_tag" && run docker rmi --no-prune "$_tag"
    done
    journal pruned "$_name"
    [ -n "$_reference" ] || return 0
    # Nobody's any more: no container, and no name but the digest that it was pulled by.
    _users=$(timeout -k 5 "$T" docker ps -aq --filter "ancestor=$_image") || return 0
    _tags=$(timeout -k 5 "$T" docker image inspect --format '{{range .RepoTags}}{{.}} {{end}}' "$_image") || return 0
    [ -n "$_users$_tags" ] || run docker rmi "$_reference"
    return 0
}
#PRUNE#
exit 0
