# Forward: from what serves to release RELEASE. Runs as a transient unit, so that no lost
# connection kills it halfway. Exits 0 started; 74 the host changed since the plan; 75 busy; 76 no
# longer armed; 1 failed. Whether anything was touched, the file `touched` tells (restore follows).
LOG=$DIR/logs/swap.log
finish() { _rc=$?; echo "$_rc" >"$DIR/logs/.swap.rc" && mv -T "$DIR/logs/.swap.rc" "$DIR/logs/swap.rc"; }
trap finish EXIT
hold 10 swap || { say "another script holds $STATE/mutate.lock"; exit 75; }
still_armed() { [ -e "$DIR/armed" ] || { say "release $RELEASE is no longer armed"; exit 76; }; }
fail() { say "failed: $1"; journal swap-failed "$1"; exit 1; }
# expect ID LINE: name, policy, state and start. expect_same ID LINE: name and policy, of a release
# of ours that keeps crashing.
expect() { _expect "$1" "$2" '{{.Name}} {{.State.Status}} {{.State.StartedAt}} {{.HostConfig.RestartPolicy.Name}}:{{.HostConfig.RestartPolicy.MaximumRetryCount}}'; }
expect_same() { _expect "$1" "$2" '{{.Name}} {{.HostConfig.RestartPolicy.Name}}:{{.HostConfig.RestartPolicy.MaximumRetryCount}}'; }
_expect() {
    _is=$(field "$1" "$3")
    [ "$_is" = "$2" ] && return 0
    say "the host changed since the plan: $1 was '$2', is '$_is'"
    exit 74
}
# there ID NAME: what is to be started; a nightly prune takes what does not run.
there() {
    [ -z "$(field "$1" '{{.Id}}')" ] || return 0
    if gone "$1"; then say "the host changed since the plan: $2 ($1) is gone"; else say "the docker engine does not answer"; fi
    exit 74
}
gpu_holders() {
    _ids=$(timeout -k 5 "$T" docker ps -q --no-trunc) || return 1
    # shellcheck disable=SC2086 # ids are words
    [ -z "$_ids" ] || timeout -k 5 "$T" docker inspect --type container --format \
        '{{if or .HostConfig.DeviceRequests (eq .HostConfig.Runtime "nvidia")}}{{.Id}}{{end}}' $_ids | sort | tr '\n' ' ' | tr -s ' '
}
still_armed
#EXPECT#
_holders=$(gpu_holders) || { say "the docker engine does not answer"; exit 74; }
_holders=${_holders# }
[ "${_holders% }" = "$GPU_HOLDERS" ] ||
    { say "the host changed since the plan: GPUs were held by '$GPU_HOLDERS', are held by '${_holders% }'"; exit 74; }
journal swap "$WORDS"
# From here on there is something to put back.
true >"$DIR/touched" && sync "$DIR/touched" "$DIR" || fail "$DIR/touched could not be written; nothing was stopped"
still_armed
#RENAMES#
#POLICIES#
_pids=
for _id in $DOWN; do
    _more=$(on_gpus "$_id") || say "nvidia-smi fails: the GPUs are not waited for"
    _pids="$_pids $_more"
done
still_armed
true >"$RUN/stopping"
_stopped=$(uptime_now)
printf 'stopped=%s\n' "$_stopped" >"$DIR/logs/swap.times"
#STOPS#
await_gpus "$GPU_WAIT" "${_pids# }" || fail "memory stays held on the GPUs by$HELD"
still_armed
#STARTS#
_started=$(uptime_now)
printf 'started=%s\n' "$_started" >>"$DIR/logs/swap.times"
sync_docker
journal swapped "stopped at $_stopped, started at $_started (seconds since boot)"
say "swapped"
exit 0
