"""The scripts of a release, rendered from its plan. Pure.

Values enter a script only as quoted assignments at its head and as quoted words of command lines;
the rest is the constant text of shell/*.sh. The `docker` command lines are rendered here once: the
plan on the screen, the scripts, the journal and the note all say these words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from rollpin import recreate
from rollpin.collisions import told_port
from rollpin.command_line import secret_free
from rollpin.observe import WAS, Container
from rollpin.places import RUN_DIR, STATE_DIR, giveback_name, recreate_name, release_dir
from rollpin.plan import Plan, Start, Stop
from rollpin.recreate import OWN_LOSSES


@dataclass(frozen=True)
class Bound:
    """What only the run knows: the transaction's id and the id that docker gave the container."""

    transaction: str
    container: str


def render(plan: Plan, bound: Bound, image: Mapping[str, object] | None = None) -> dict[str, str]:
    """File name -> text of every script and unit of the release. image: as it was staged."""
    directory = release_dir(plan.service, plan.number)
    boot = _text("boot.service")
    for key, value in (
        ("@SERVICE@", plan.service),
        ("@RELEASE@", str(plan.number)),
        ("@DIR@", directory),
    ):
        boot = boot.replace(key, value)
    paused = {"PAUSED": " ".join(_paused(plan))}
    out = {
        "swap.sh": _script("swap.sh", plan, bound, _swap_blocks(plan, bound)),
        "commit.sh": _script("commit.sh", plan, bound, _commit_blocks(plan, bound)),
        "restore.sh": _script("restore.sh", plan, bound, _restore_blocks(plan, bound), paused),
        "arm.sh": _script("arm.sh", plan, bound, {}),
        "guard.sh": _script("guard.sh", plan, bound, {}),
        "takeover.sh": _script("takeover.sh", plan, bound, {}),
        "boot.service": boot,
    }
    for stop in plan.stops:
        ident = stop.container.id
        out[recreate_name(ident)] = _recreate(plan, bound, stop)
        out[_env_name(ident)] = "".join(f"{line}\n" for line in stop.again.env)
        if not stop.ours:
            out[giveback_name(ident)] = _giveback(plan, bound, stop)
    if image and plan.main.created and plan.create:
        out[recreate_name(bound.container)] = _recreate_own(plan, bound, str(image["id"]))
    return out


def _env_name(container: str) -> str:
    return f"recreate-{container[:12]}.env"


def forward(plan: Plan, container: str = "") -> list[str]:
    """The `docker` command lines of swap and commit, in order, as they will be run.

    A container that docker has not created yet is called by its name at that moment.
    """
    return [
        *_lines(_renames(plan, container or plan.main.before)),
        *_lines(_policies_off(plan)),
        *_lines(_stop_commands(plan)),
        *_lines(_start_commands(plan, container or plan.main.live)),
        *_lines(_policies_on(plan, container or plan.main.live)),
        *(f"docker rm {p.id}" for p in plan.prune),
    ]


def _lines(commands: Iterable[Sequence[str]]) -> list[str]:
    return [shlex.join(c) for c in commands]


def _ident(start: Start, container: str) -> str:
    return start.id or start.was or container


def _renames(plan: Plan, container: str) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = [
        ("docker", "rename", s.container.id, s.moved)
        for s in plan.stops
        if s.moved != s.container.name
    ]
    out += [
        ("docker", "rename", _ident(s, container), s.live)
        for s in plan.starts
        if s.live != s.before
    ]
    return out


def _policies_off(plan: Plan) -> list[tuple[str, ...]]:
    ids = [s.container.id for s in plan.stops if s.container.policy != "no"]
    return [("docker", "update", "--restart", "no", i) for i in ids]


def _stop_commands(plan: Plan) -> list[tuple[str, ...]]:
    """One command: docker stops them side by side. The longest grace counts for all.

    Docker 20.10 lets a paused one sit out its whole grace: it is woken before.
    """
    running = [s for s in plan.stops if s.was_running]
    if not running:
        return []
    grace = str(round(max(s.grace for s in running)))
    return [
        *(("docker", "unpause", ident) for ident in _paused(plan)),
        ("docker", "stop", "-t", grace, *(s.container.id for s in running)),
    ]


def _paused(plan: Plan) -> list[str]:
    return [s.container.id for s in plan.stops if s.container.status == "paused"]


def _start_commands(plan: Plan, container: str) -> list[tuple[str, ...]]:
    return [("docker", "start", _ident(s, container)) for s in plan.starts]


def _policies_on(plan: Plan, container: str) -> list[tuple[str, ...]]:
    return [
        ("docker", "update", "--restart", s.policy, _ident(s, container))
        for s in plan.starts
        if s.policy != "no"
    ]


def _swap_blocks(plan: Plan, bound: Bound) -> dict[str, list[str]]:
    expect = [_expect(s) for s in plan.stops]
    for start in plan.starts:
        expect.append(shlex.join(("there", _ident(start, bound.container), start.before)))
    longest = max((s.grace for s in plan.stops), default=0.0)
    starts: list[str] = ["T=120"]
    for command in _start_commands(plan, bound.container):
        starts.append(f"run {shlex.join(command)} || fail 'the container could not be started'")
    return {
        "EXPECT": expect,
        "RENAMES": [
            f"run {line} || fail 'a rename failed; nothing was stopped'"
            for line in _lines(_renames(plan, bound.container))
        ],
        "POLICIES": [
            f"run {line} || fail 'a restart policy could not be set; nothing was stopped'"
            for line in _lines(_policies_off(plan))
        ],
        "STOPS": [f"T={round(longest) + 30}"]
        + [f"run {line} || fail 'a stop failed'" for line in _lines(_stop_commands(plan))],
        "STARTS": starts,
    }


def _expect(stop: Stop) -> str:
    c = stop.container
    if stop.unsteady:
        words = ("expect_same", c.id, f"/{c.name} {_engine_policy(c)}")
    else:
        line = f"/{c.name} {c.status} {c.started_at} {_engine_policy(c)}"
        words = ("expect", c.id, line)
    return shlex.join(words)


def _engine_policy(container: Container) -> str:
    """As docker's template prints it: an absent policy is an empty name there."""
    raw = (container.record.get("HostConfig") or {}).get("RestartPolicy") or {}
    return f"{raw.get('Name') or ''}:{raw.get('MaximumRetryCount') or 0}"


def _commit_blocks(plan: Plan, bound: Bound) -> dict[str, list[str]]:
    return {
        "POLICIES": [
            f"run {line} || exit 78" for line in _lines(_policies_on(plan, bound.container))
        ],
        "NOTES": _returned_notes(plan),
        "PRUNE": _lines(("prune", p.id, p.name, p.image, *p.tags) for p in plan.prune),
    }


def _returned_notes(plan: Plan) -> list[str]:
    """Kept for a rollback by hand, after which these are displaced again."""
    return [
        f'mv -f "$STATE"/displaced/{shlex.quote(s.was or s.id)}.md'
        f' "$DIR"/returned-{shlex.quote(s.was or s.id)}.md 2>/dev/null'
        for s in plan.starts
        if s.displaced
    ]


def _restore_blocks(plan: Plan, bound: Bound) -> dict[str, list[str]]:
    grace = round(plan.failed_grace)
    unstart: list[str] = []
    unname: list[str] = []
    remove: list[str] = []
    for start in reversed(plan.starts):
        ident = shlex.quote(_ident(start, bound.container))
        words = shlex.quote(f"{start.live} could not be stopped: docker stop {start.live}")
        unstart += [
            f"if ! absent {ident}; then",
            # Also one that was made again since.
            f"    _s=$(now_or {ident})",
            '    _pids="$_pids $(on_gpus "$_s")"',
            f'    run docker update --restart no "$_s" || wrong {words}',
            "    # A failed release gets a short grace, a committed one is drained.",
            f'    if [ "$NOW" = restoring ]; then _g={grace}; else _g={round(plan.drain)}; fi',
            f'    T=$((_g + 30)); run docker stop -t "$_g" "$_s" || wrong {words}; T=60',
            "fi",
        ]
        told = shlex.quote(
            f"{start.live} could not be renamed: docker rename {start.live} {start.before}"
        )
        unname += [
            f'absent {ident} || rename "$(now_or {ident})" {shlex.quote(start.before)}'
            f" || wrong {told}"
        ]
        if start.created:
            remove += _remove(plan, start, ident)
    back: list[str] = []
    policies: list[str] = []
    check: list[str] = []
    lost: list[str] = []
    for stop in plan.stops:
        c = stop.container
        was = "yes" if stop.was_running else "no"
        if c.auto_remove:
            back.append(shlex.join(("going", c.id)))
        back.append(shlex.join(("back", c.id, c.name, was, f"{c.image} {secret_free(c.argv)}")))
        if stop.policy != "no":
            policies.append(shlex.join(("policy", c.id, stop.policy, c.name)))
        if stop.was_running and not stop.unsteady:
            check.append(shlex.join(("runs", c.id, c.name)))
            lost.append(shlex.join(("lost", c.id, c.name)))
    return {
        "UNSTART": unstart,
        "UNNAME": unname,
        "BACK": back,
        "BACK_POLICIES": policies,
        "CHECK": check,
        "LOST": lost or [":"],
        "REMOVE": remove,
        "NOTES": _returned_notes(plan),
    }


def _remove(plan: Plan, start: Start, ident: str) -> list[str]:
    """A failed release leaves its logs and nothing else. After a rollback by hand it is kept."""
    tag = shlex.quote(f"{plan.service}:{plan.number}")
    return [
        f'if [ "$NOW" = restoring ] && ! absent {ident}; then',
        f"    _s=$(now_or {ident})",
        "    # An engine logs its keys: for root alone. A log that hangs must not hold the lock.",
        '    (umask 077; timeout -k 5 60 docker logs --timestamps --tail 20000 "$_s"'
        ' >"$DIR/logs/engine.log" 2>&1 9>&-) || say "the log of the failed container was not kept"',
        '    (umask 077; field "$_s" \'{{json .State}}\' >"$DIR/logs/engine.state.json")',
        f'    run docker rm --volumes "$_s" || wrong {shlex.quote(f"docker rm {start.before}")}',
        "fi",
        # Also of one that somebody removed, or that a power cut came after.
        f'if [ "$NOW" = restoring ] && has_image rollpin/{tag}; then',
        f"    run docker rmi --no-prune rollpin/{tag} || say 'the local tag stays'",
        "fi",
    ]


def _recreate(plan: Plan, bound: Bound, stop: Stop) -> str:
    """Makes a container of before again. Bears its secrets: for root alone."""
    again = stop.again
    file = f"{release_dir(plan.service, plan.number)}/{_env_name(stop.container.id)}"
    before, after = recreate.command(again, stop.moved, file)
    blocks = {
        "VOLUMES": _lines(("volume", *one) for one in again.volumes),
        # Exported for this one command: what docker itself reads stays as it is.
        "EXPORTS": [
            f"export {name}={shlex.quote(value)}" for name, value in again.exported.items()
        ],
        "CREATE": [
            f'_id=$(timeout -k 5 300 {shlex.join(before)} "$_ref" {shlex.join(after)} 2>"$_err") ||'
        ],
        "NETWORKS": [
            f'run {shlex.join(("docker", "network", "connect", *options))} "$_id" ||'
            f' LOSSES="$LOSSES; its place in a network"'
            for options in again.networks
        ],
    }
    extra = {
        "ID": stop.container.id,
        "NAME": stop.container.name,
        "IMAGE": again.image,
        "IMAGE_ID": again.image_id,
        "PULL": again.pull,
        "SHOWN": secret_free((*before, again.image, *after)),
        "LOSSES": "; ".join(again.losses),
    }
    return _script("recreate.sh", plan, bound, blocks, extra)


def _recreate_own(plan: Plan, bound: Bound, image_id: str) -> str:
    """Makes the release's own container again, for one that was removed while it served."""
    reference = plan.pin.reference if plan.pin else ""
    at = plan.create.index(reference)
    label = ("--label", f"{WAS}.{bound.container}=removed")
    before = [*plan.create[:2], *label, *plan.create[2:at]]
    after = plan.create[at + 1 :]
    blocks = {
        "VOLUMES": [],
        "EXPORTS": [
            "set -a",
            "# shellcheck disable=SC1091 # the values of its secrets",
            '. "$DIR/env"',
            "set +a",
        ],
        "CREATE": [
            f'_id=$(timeout -k 5 300 {shlex.join(before)} "$_ref" {shlex.join(after)} 2>"$_err") ||'
        ],
        "NETWORKS": [],
    }
    extra = {
        "ID": bound.container,
        "NAME": plan.main.before,
        "IMAGE": reference,
        "IMAGE_ID": image_id,
        "PULL": reference,
        "SHOWN": secret_free((*before, reference, *after)),
        "LOSSES": "; ".join(OWN_LOSSES),
    }
    return _script("recreate.sh", plan, bound, blocks, extra)


def _giveback(plan: Plan, bound: Bound, stop: Stop) -> str:
    c = stop.container
    ports = set(c.ports)
    told = told_port(c)
    if told:
        ports.add(told)
    extra = {
        "ID": c.id,
        "NAME": c.name,
        "WAS_RUNNING": "yes" if stop.was_running else "no",
        "POLICY": stop.policy,
        "GPUS": " ".join(c.gpus),
        "PORTS": " ".join(str(p) for p in sorted(ports)),
    }
    return _script("giveback.sh", plan, bound, {}, extra)


def render_make_dir(plan: Plan, bound: Bound) -> str:
    """For a rollback, whose container is there already: the release's directory, and no more."""
    return _script("make_dir.sh", plan, bound, {})


def render_stage(plan: Plan, bound: Bound, image_user: str, secret_env: str) -> str:
    """stage.sh: run once from standard input, kept nowhere, for it carries the secrets."""
    reference = plan.pin.reference if plan.pin else ""
    own_user = "" if image_user in ("", "root", "0", "0:0") else image_user
    caches = []
    for host, _ in plan.cache_dirs:
        path = shlex.quote(host)
        failed = shlex.quote(f"{host} cannot be made")
        caches += [
            f"if [ ! -d {path} ]; then",
            f"    note_parents {path}",
            f'    mkdir -p {path} && chown "$_user" {path} || fail 71 {failed}',
            "fi",
        ]
    stale = [f"clear_stale {shlex.quote(str(number))}" for number in plan.stale]
    blocks = {
        "STALE": stale,
        "CACHES": caches,
        "PROBE": _probe(plan, reference, bound.transaction),
        "CREATE": [
            f'_id=$(timeout -k 5 120 {shlex.join(plan.create)} 2>"$DIR/logs/create.err") ||'
        ],
    }
    extra = {
        "SECRET_ENV": secret_env,
        "REFERENCE": reference,
        "IMAGE_USER": own_user,
    }
    return _script("stage.sh", plan, bound, blocks, extra)


# With the real mounts, as the image's own user: written, executed, removed.
_PROBE = (
    'for d; do f="$d/.rollpin-probe"; { printf "#!/bin/sh\\nexit 0\\n" >"$f" && chmod 0700 "$f"'
    ' && "$f"; } || { echo "$d"; rm -f "$f"; exit 1; }; rm -f "$f"; done'
)


def _probe(plan: Plan, reference: str, transaction: str) -> list[str]:
    """A throw-away container that tries the cache dirs; none when there are none."""
    if not plan.cache_dirs:
        return []
    command = [
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--label",
        f"rollpin.probe={transaction}",
    ]
    for host, inside in plan.cache_dirs:
        command += ["--volume", f"{host}:{inside}"]
    command += ["--entrypoint", "sh", reference, "-c", _PROBE, "sh"]
    command += [inside for _, inside in plan.cache_dirs]
    return [
        "# shellcheck disable=SC2016 # expanded in the container",
        f"_said=$(timeout -k 5 120 {shlex.join(command)} 2>&1) ||",
        '    fail 71 "the container cannot write and execute in a cache dir: $_said"',
    ]


def render_unstage(plan: Plan, bound: Bound, remove_image: bool, why: str) -> str:
    extra = {
        "REFERENCE": plan.pin.reference if plan.pin else "",
        "REMOVE_IMAGE": "yes" if remove_image else "no",
        "WHY": why,
    }
    return _script("unstage.sh", plan, bound, {}, extra)


def _script(
    name: str,
    plan: Plan,
    bound: Bound,
    blocks: Mapping[str, Sequence[str]],
    extra: Mapping[str, str] | None = None,
) -> str:
    engine = plan.engine
    root = engine.root if engine else ""
    words = "; ".join(forward(plan, bound.container))
    values = {
        "STATE": STATE_DIR,
        "RUN": RUN_DIR,
        "SERVICE": plan.service,
        "RELEASE": str(plan.number),
        "TX": bound.transaction,
        "WHO": plan.by,
        "ENGINE_ID": engine.id if engine else "",
        "DOCKER_ROOT": root,
        "BALLAST": f"{root}/.rollpin-ballast",
        "GUARD": "on" if plan.guard else "off",
        "LEASE": str(max(1, round(plan.lease))),
        "GPU_WAIT": "60",
        "ENGINE_WAIT": "300",
        "GPU_HOLDERS": " ".join(plan.gpu_holders),
        "KNOWN": " ".join([*(s.container.id for s in plan.stops), bound.container]).strip(),
        "DOWN": " ".join(s.container.id for s in plan.stops if s.was_running),
        "WORDS": words,
        **(extra or {}),
    }
    body = _filled(_text(name), blocks)
    head = "".join(f"{key}={shlex.quote(value)}\n" for key, value in values.items())
    title = f"# rollpin: {name} of {plan.service} release {plan.number} ({plan.kind})"
    return f"#!/bin/sh\n{title}\n{_LINT}\nset -u\n{head}\n{_text('lib.sh')}\n{body}"


# For whoever lints a script: head and lib are shared, no script uses all of them; and
# `A && B || fail` is meant to fail for either.
_LINT = "# shellcheck disable=SC2034,SC2329,SC2015"


def _filled(text: str, blocks: Mapping[str, Sequence[str]]) -> str:
    """Every `#NAME#` at once, indented as it stands: a value that looks like one stays."""

    def lines(found: re.Match[str]) -> str:
        return "".join(f"{found[1]}{line}\n" for line in blocks[found[2]])

    return re.sub(rf"^( *)#({'|'.join(blocks)})#\n", lines, text, flags=re.M) if blocks else text


@cache
def _text(name: str) -> str:
    return files("rollpin").joinpath(f"shell/{name}").read_text(encoding="utf-8")
