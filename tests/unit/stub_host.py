"""A host of stubs: rendered scripts run for real, and every `docker` command line is recorded.

Nothing outside the folder can be reached by the paths that the scripts know: state, /run, units and
the docker root are all moved into it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from rollpin.plan import Plan
from rollpin.scripts import Bound, render

# Remembers name, status and policy by container id, as files; answers what the scripts ask.
DOCKER = r"""#!/bin/sh
{ printf '%s\0' "$#"; for _a; do printf '%s\0' "$_a"; done; } >>"$STUB/calls"
at() {
    for _n in "$STUB"/containers/*/name; do
        [ ! -e "$_n" ] || [ "$(cat "$_n")" != "$1" ] || { printf '%s' "${_n%/name}"; return; }
    done
    printf '%s' "$STUB/containers/$1"
}
known() { [ -d "$(at "$1")" ]; }
case $1 in
info) cat "$STUB/engine" ;;
ps)
    case "$*" in
    *label=rollpin.was.*) cat "$STUB/was/${*##*rollpin.was.}" 2>/dev/null; exit 0 ;;
    *--filter*) cat "$STUB/ids" ;;
    *-aq*) ls "$STUB/containers" ;;
    *) cat "$STUB/ids" ;;
    esac ;;
image) cat "$STUB/image" 2>/dev/null; exit 0 ;;
logs | tag | rmi | pull | volume | network) exit 0 ;;
run) [ -z "${HF_TOKEN:-}" ] || printf '%s' "$HF_TOKEN" >"$STUB/run.token"; exit 0 ;;
create)
    printf '%s' "${HF_TOKEN:-}" >"$STUB/create.token"
    _new=$(cat "$STUB/created")
    while [ $# -gt 0 ]; do
        case $1 in
        --name) _name=$2 ;;
        rollpin.was.*)
            mkdir -p "$STUB/was" "$(at "$_new")"
            _was=${1#rollpin.was.}; echo "$_new" >"$STUB/was/${_was%%=*}"
            printf '%s' "$_name" >"$(at "$_new")/name"; echo created >"$(at "$_new")/status" ;;
        esac
        shift
    done
    echo "$_new" ;;
rename) known "$2" || exit 1; printf '%s' "$3" >"$(at "$2")/name" ;;
update) known "$4" || exit 1; printf '%s' "$3" >"$(at "$4")/policy" ;;
start) known "$2" || exit 1; echo running >"$(at "$2")/status" ;;
stop) shift 3; for _c; do known "$_c" || exit 1; echo exited >"$(at "$_c")/status"; done ;;
rm) known "$3" || exit 1; rm -r "$(at "$3")" ;;
inspect)
    [ "$2 $3 $4" = "--type container --format" ] || exit 125
    _format=$5
    shift 5
    for _c; do
        known "$_c" || exit 1
        cd "$(at "$_c")" || exit 1
        case $_format in
        '{{.Id}}') echo "$_c" ;;
        '{{.Name}}') printf '/'; cat name; echo ;;
        '{{.State.Status}}') cat status ;;
        '{{json .State}}') echo '{}' ;;
        '{{.State.Status}} {{.State.Pid}} {{.State.StartedAt}}') echo "$(cat status) 77 then" ;;
        '{{.Name}} {{.State.Status}} '*) cat expected; echo ;;
        '{{if or .HostConfig.DeviceRequests'*) cat gpu 2>/dev/null ;;
        '{{range .HostConfig.DeviceRequests}}'*) cat gpus 2>/dev/null ;;
        *) exit 125 ;;
        esac
    done ;;
*) exit 125 ;;
esac
"""
TIMEOUT = '#!/bin/sh\n[ "$1" = -k ] && shift 2\nshift\nexec "$@"\n'
STUBS = {
    "docker": DOCKER,
    "timeout": TIMEOUT,
    "id": '#!/bin/sh\n[ "$1" = -un ] && echo root || echo 0\n',
    **dict.fromkeys(
        ("systemctl", "systemd-run", "flock", "sync", "nvidia-smi", "ss", "chown"),
        "#!/bin/sh\nexit 0\n",
    ),
}


class StubHost:
    """A folder that plays a host. `docker_root` is where the engine of the plan must lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stub = folder / "stub"
        self.docker_root = folder / "docker root"
        self.cwd = folder / "cwd"
        for made in (self.stub / "bin", self.stub / "containers", self.docker_root, self.cwd):
            made.mkdir(parents=True)
        for name, text in STUBS.items():
            file = self.stub / "bin" / name
            file.write_text(text)
            file.chmod(0o755)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def moved(self, script: str) -> str:
        """The script with its places, and its PATH, inside the folder."""
        out = script
        for old, new in (
            ("STATE=/var/lib/rollpin\n", f"STATE={self.state}\n"),
            ("RUN=/run/rollpin\n", f"RUN={self.folder}/run\n"),
            ("/etc/systemd/system", f"{self.folder}/units"),
            ("/run/systemd/system", f"{self.folder}/no-systemd"),
            ("/run/docker.pid", f"{self.stub}/engine-pid"),
        ):
            assert old.startswith("/") or old in script, old
            out = out.replace(old, new)
        out, paths = re.subn(
            r"^export LC_ALL=C PATH=.*$",
            f"export LC_ALL=C PATH={self.stub}/bin:/usr/bin:/bin STUB={self.stub}",
            out,
            flags=re.M,
        )
        assert paths == 1
        return out

    def stands(self, plan: Plan, bound: Bound) -> Path:
        """The plan's containers stand on the host and its release is armed. Its directory."""
        assert plan.engine is not None
        (self.stub / "engine").write_text(f"{plan.engine.id} {plan.engine.root}\n")
        for stop in plan.stops:
            c = stop.container
            raw = c.record["HostConfig"]["RestartPolicy"]
            at = self._container(c.id, c.name, c.status)
            (at / "expected").write_text(
                f"/{c.name} {c.status} {c.started_at} {raw['Name']}:{raw['MaximumRetryCount']}"
            )
            if c.id in plan.gpu_holders:
                (at / "gpu").write_text(f"{c.id}\n")
        for start in plan.starts:
            self._container(start.id or bound.container, start.before, "created")
        holders = "".join(f"{i}\n" for i in plan.gpu_holders)
        (self.stub / "ids").write_text(holders)
        directory = self.state / plan.service / "releases" / str(plan.number)
        (directory / "logs").mkdir(parents=True)
        for name, text in render(plan, bound).items():
            (directory / name).write_text(self.moved(text) if name.endswith(".sh") else text)
        (directory / "armed").touch()
        return directory

    def _container(self, ident: str, name: str, status: str) -> Path:
        at = self.stub / "containers" / ident
        at.mkdir()
        (at / "name").write_bytes(name.encode())
        (at / "status").write_text(f"{status}\n")
        return at

    def removes(self, ident: str) -> None:
        """Somebody removes the container."""
        shutil.rmtree(self.stub / "containers" / ident)
        kept = [x for x in (self.stub / "ids").read_text().splitlines() if x != ident]
        (self.stub / "ids").write_text("".join(f"{x}\n" for x in kept))

    def run(self, script: Path | str, *arguments: str) -> tuple[int, str]:
        """Runs a script (a file, or the text of one on standard input)."""
        command, text = ["sh", *map(str, (script, *arguments))], None
        if isinstance(script, str):
            command, text = ["sh", "-s", *arguments], self.moved(script)
        done = subprocess.run(
            command,
            cwd=self.cwd,
            input=text,
            env={"PATH": os.environ["PATH"], "HOME": str(self.cwd)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=30,
            check=False,
        )
        return done.returncode, done.stdout

    def calls(self) -> list[list[str]]:
        """Every docker command line since the last call of this, argument by argument."""
        file = self.stub / "calls"
        words = file.read_bytes().decode().split("\0")[:-1] if file.exists() else []
        file.unlink(missing_ok=True)
        out = []
        while words:
            count = int(words[0])
            out.append(["docker", *words[1 : count + 1]])
            words = words[count + 1 :]
        return out

    def changes(self) -> list[list[str]]:
        """Those among them that change something."""
        return [c for c in self.calls() if c[1] not in ("inspect", "ps", "info", "logs", "image")]

    def policy(self, ident: str) -> str:
        return (self.stub / "containers" / ident / "policy").read_bytes().decode()

    def journal(self, service: str) -> str:
        return (self.state / service / "journal.jsonl").read_text(encoding="utf-8")

    def untouched(self) -> bool:
        """No value was run: nothing was made where the scripts stand."""
        return not list(self.cwd.iterdir())
