# Observes; changes nothing. Each section carries its own exit status, so that a dead daemon
# cannot be read as "no containers". SERVICE, STATE, RUN, IMAGE, PATHS, IDLE and DIFFS are set above.
export LC_ALL=C PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022
section() {
    _name=$1; shift
    printf '@@rollpin begin %s\n' "$_name"
    "$@" 2>&1
    printf '@@rollpin end %s %s\n' "$_name" "$?"
}
# Which container a process belongs to: the first 64-hex run of its cgroup path; nothing for a
# process of the host.
owner() {
    { sed -n 's/.*\([0-9a-f]\{64\}\).*/\1/p' "/proc/$1/cgroup" 2>/dev/null || echo; } | head -n 1
}
clock() {
    read -r _up _ </proc/uptime
    _missing=
    for _tool in flock timeout sync mv ln stat docker; do
        command -v "$_tool" >/dev/null || _missing="$_missing $_tool"
    done
    _systemd=no
    [ -d /run/systemd/system ] && command -v systemd-run >/dev/null && _systemd=yes
    printf 'hostname=%s\nnow=%s\nuptime=%s\nboot_id=%s\nsystemd=%s\nuid=%s\nmissing=%s\n' \
        "$(uname -n)" "$(date +%s)" "$_up" "$(cat /proc/sys/kernel/random/boot_id)" \
        "$_systemd" "$(id -u)" "$_missing"
}
engine() {
    _info=$(timeout -k 2 20 docker info --format '{{json .}}')
    set -- $?
    printf '%s\n' "$_info"
    return "$1"
}
containers() {
    _ids=$(timeout -k 2 20 docker ps -aq --no-trunc) || return
    [ -z "$_ids" ] && return 0
    # A container may go between the two commands: ask again for those that are still there.
    # shellcheck disable=SC2086 # ids are words
    timeout -k 2 30 docker inspect --type container --format '{{json .}}' $_ids 2>/dev/null ||
        { _ids=$(timeout -k 2 20 docker ps -aq --no-trunc) || return
          # shellcheck disable=SC2086
          timeout -k 2 30 docker inspect --type container --format '{{json .}}' $_ids; }
}
# Absent is an answer only from a daemon that answers.
image() {
    [ -n "$IMAGE" ] || return 0
    if _out=$(timeout -k 2 20 docker image inspect --format '{{json .}}' "$IMAGE" 2>/dev/null); then
        printf '%s\n' "$_out"
    else
        timeout -k 2 20 docker version --format '{{.Server.Version}}' >/dev/null
    fi
}
gpus() {
    timeout -k 2 20 nvidia-smi \
        --query-gpu=index,uuid,name,driver_version,memory.used --format=csv,noheader,nounits
}
gpu_apps() {
    _apps=$(timeout -k 2 20 nvidia-smi --query-compute-apps=pid,gpu_uuid,process_name \
        --format=csv,noheader,nounits) || { printf '%s\n' "$_apps"; return 1; }
    printf '%s\n' "$_apps" | while IFS= read -r _row; do
        [ -n "$_row" ] || continue
        printf '%s;%s\n' "$_row" "$(owner "${_row%%,*}")" | ascii
    done
}
# One line per listening socket: port, pid (or -), command, container id.
listeners() {
    command -v ss >/dev/null || { echo "ss (iproute2) is not installed"; return 1; }
    _all=$(timeout -k 2 20 ss -Hltnp) || return
    printf '%s\n' "$_all" | while read -r _state _rq _sq _local _peer _users; do
        [ -n "$_local" ] || continue
        _pids=$(printf '%s' "$_users" | grep -o 'pid=[0-9]*' | cut -d= -f2 | sort -u)
        [ -n "$_pids" ] || { printf '%s - - -\n' "${_local##*:}"; continue; }
        for _pid in $_pids; do
            _comm=$(tr ' ' '_' <"/proc/$_pid/comm" 2>/dev/null | ascii)
            printf '%s %s %s %s\n' "${_local##*:}" "$_pid" "${_comm:-?}" "$(owner "$_pid")"
        done
    done
}
json() { printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g'; }
# PATHS has one path a line; the engine's own root, wherever it is, is looked at too.
disks() {
    _root=$(printf '%s\n' "$_info" | sed -n 's/.*"DockerRootDir":"\([^"]*\)".*/\1/p')
    printf '%s\n%s\n' "$PATHS" "$_root" | sort -u | while IFS= read -r _path; do
        [ -n "$_path" ] || continue
        _exists=no; [ -e "$_path" ] && _exists=yes
        _at=$_path
        while [ ! -e "$_at" ] && [ "$_at" != / ]; do _at=$(dirname "$_at"); done
        _free=$(df -PB1 "$_at" 2>/dev/null | sed -n '2p' | awk '{print $(NF-2)}')
        _mount=$(findmnt -nro FSTYPE,OPTIONS -T "$_at" 2>/dev/null | head -n 1)
        printf '{"path":"%s","free":"%s","fstype":"%s","options":"%s","exists":"%s"}\n' \
            "$(json "$_path")" "$_free" "${_mount%% *}" "$(json "${_mount#* }")" "$_exists"
    done
}
# IDLE has the names whose last log line decides.
logs() {
    for _c in $IDLE; do
        _id=$(timeout -k 2 20 docker inspect --type container --format '{{.Id}}' "$_c" 2>/dev/null) || continue
        if _line=$(timeout -k 2 20 docker logs --tail 1 --timestamps "$_id" 2>&1); then
            _line=${_line##*
}
            if [ -z "$_line" ]; then echo "$_id none"
            else echo "$_id $(date -d "${_line%% *}" +%s 2>/dev/null || echo unreadable)"; fi
        else
            echo "$_id unreadable"
        fi
    done
}
# The images of the containers: what a container inherits, and which registry has it. An image may
# have been removed under its container.
images() {
    _used=$(timeout -k 2 20 docker ps -aq --no-trunc) || return
    [ -n "$_used" ] || return 0
    # shellcheck disable=SC2086 # ids are words
    _used=$(timeout -k 2 30 docker inspect --type container --format '{{.Image}}' $_used 2>/dev/null | sort -u)
    # shellcheck disable=SC2086
    [ -z "$_used" ] || timeout -k 2 30 docker image inspect --format \
        '{"Id":{{json .Id}},"RepoDigests":{{json .RepoDigests}},"RepoTags":{{json .RepoTags}},"Config":{{json .Config}}}' \
        $_used 2>/dev/null
    return 0
}
# What containers wrote into themselves: that would be lost if somebody removed them.
diffs() {
    for _c in $DIFFS; do
        _id=$(timeout -k 2 20 docker inspect --type container --format '{{.Id}}' "$_c" 2>/dev/null) || continue
        _out=$(timeout -k 2 20 docker diff "$_id" 2>/dev/null)
        echo "$_id $?"
        printf '%s\n' "$_out" | sed -n '/./s/^/ /p' | head -n 500 | ascii
    done
}
# What pyinfra reads is UTF-8, or it reads nothing: a damaged file must not hide the rest.
ascii() { tr '\000-\010\013-\037\177-\377' '?'; }
# service, number, state, age in seconds, record (null: it should be there and is not).
releases() {
    _now=$(date +%s)
    for _r in "$STATE"/*/releases/*/; do
        [ -d "$_r" ] || continue
        _n=${_r%/}; _n=${_n##*/}; _s=${_r%/releases/*}; _s=${_s##*/}
        # Directories that rollpin did not make are none of its releases.
        case $_n in '' | 0* | *[!0-9]*) continue ;; esac
        case $_s in '' | *[!a-z0-9_-]*) continue ;; esac
        _st=staged
        for _f in armed restoring restored rolling-back rolled-back committed; do
            [ -e "$_r$_f" ] && { _st=$_f; break; }
        done
        printf '%s %s %s %s ' "$_s" "$_n" "$_st" "$((_now - $(stat -c %Y "$_r" 2>/dev/null || echo 0)))"
        # A run that died while staging has left no record yet.
        if [ -f "${_r}release.json" ] && [ -s "${_r}release.json" ]; then
            tr -d '\n' <"${_r}release.json" 2>/dev/null | ascii
        elif [ "$_st" = staged ]; then printf '{}'
        else printf 'null'; fi
        echo
    done
    return 0
}
transaction() {
    [ -e "$RUN/transaction" ] || return 0
    ascii <"$RUN/transaction" && printf 'lease=%s\n' "$(cut -d' ' -f1 "$RUN/lease" 2>/dev/null)"
}
displaced() {
    for _note in "$STATE"/displaced/*.md; do
        [ -e "$_note" ] || continue
        _note=${_note##*/}; printf '%s\n' "${_note%.md}" | ascii
    done
}
# service, number, container and its start, as they were verified before the commit.
verified() {
    for _v in "$STATE"/*/releases/*/verified; do
        [ -s "$_v" ] && [ -e "${_v%/*}/committed" ] || continue
        _n=${_v%/verified}; _s=${_n%/releases/*}
        printf '%s %s ' "${_s##*/}" "${_n##*/}"; head -n 1 "$_v" | ascii
    done
    return 0
}
# Who may start containers: services (as systemd expands them) and lines of crontabs that speak of
# docker, or whose scripts do. Of scripts only what they say of docker, and names that they give.
starters() {
    _units=
    if [ "$_systemd" = yes ]; then
        _units=$(timeout -k 2 20 systemctl show --no-pager --all -p Id -p ActiveState -p UnitFileState \
            -p Restart -p TriggeredBy -p WorkingDirectory -p Environment -p ExecStartPre -p ExecStart \
            -p ExecStartPost -p ExecStop '*.service' 2>&1) || {
            set -- $?
            printf '%s\n' "$_units" | tail -n 3
            return "$1"
        }
    fi
    _cron=$(grep -Hs '^[^#]*[^# ]' /etc/crontab /etc/cron.d/* /var/spool/cron/crontabs/* /var/spool/cron/*)
    _scripts=$(printf '%s\n%s\n' "$(printf '%s\n' "$_units" | grep '^Exec')" "$_cron" |
        tr ' =;:"'"'"'' '\n' | grep '^/' | sort -u |
        xargs -r sh -c 'find -H "$@" -maxdepth 0 -type f -size -256 -exec grep -lI docker {} +' sh 2>/dev/null |
        grep -v '^/etc/cron')
    printf '%s\n' "$_scripts" | while IFS= read -r _path; do
        [ -n "$_path" ] || continue
        sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$_path" 2>/dev/null |
            grep -E '^[^#]*docker|^[^#= ]*([Nn][Aa][Mm][Ee]|CONTAINER|container|SERVICE)[A-Za-z0-9_]*=' |
            head -n 200 | sed "s|^|Script=$_path |"
    done | ascii
    printf '%s\n' "$_cron" | _told | sed -n 's/^\([^:]*\):/Cron=\1 /p' | ascii
    printf '%s\n' "$_units" | _told '' | ascii
}
# Lines (with an empty argument: paragraphs) that speak of docker or name one of the scripts.
_told() {
    awk -v scripts="$(printf '%s' "$_scripts" | tr '\n' ' ')" ${1+-v RS=} '
        BEGIN { n = split(scripts, of, " ") }
        { told = /docker/; for (i = 1; i <= n; i++) if (index($0, of[i])) told = 1 }
        told { print $0 (RS == "" ? "\n" : "") }'
}
numbers() {
    [ -e "$STATE/$SERVICE/journal.jsonl" ] || return 0
    sed -n 's/.*"release":\([0-9][0-9]*\).*/\1/p' "$STATE/$SERVICE/journal.jsonl" | sort -un
}
section clock clock
section engine engine
section containers containers
section image image
section gpus gpus
section gpu_apps gpu_apps
section listeners listeners
section disks disks
section logs logs
section images images
section diffs diffs
section releases releases
section transaction transaction
section displaced displaced
section starters starters
section verified verified
section numbers numbers
