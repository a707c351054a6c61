"""Staging: pull, check, keep by a local tag, make the cache dirs, create, write the scripts.

Everything here is slow and harmless; nothing that serves is touched. What a failed stage made is
taken back.
"""

from __future__ import annotations

import secrets as random
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollpin import note, places, record, scripts
from rollpin.docker_api import DockerApi, Progress, same_image
from rollpin.errors import HostError, Lost, Refused, StepFailed
from rollpin.observe import HostState, Unknown
from rollpin.places import release_dir
from rollpin.plan import Plan
from rollpin.remote import Remote
from rollpin.remote_steps import said
from rollpin.scripts import Bound


@dataclass(frozen=True)
class Staged:
    """A release that waits for its transaction."""

    plan: Plan
    bound: Bound
    image: dict[str, Any] | None


def new_transaction(plan: Plan) -> str:
    return f"{plan.service}-{plan.number}-{random.token_hex(4)}"


def stage(
    plan: Plan,
    state: HostState,
    remote: Remote,
    api: DockerApi,
    at: str,
    progress: Callable[[Progress], None],
    say: Callable[[str], None],
) -> Staged:
    """Raises Refused with what was found; then the host is as it was before."""
    transaction = new_transaction(plan)
    pulled = False
    try:
        image = dict(plan.image) if plan.image else None
        container = ""
        if plan.kind == "release":
            image, pulled = _image(plan, state, api, progress, say)
            container = _create(plan, transaction, remote, image)
        else:
            _run(remote, scripts.render_make_dir(plan, Bound(transaction, "")), "making the dir")
        bound = Bound(transaction, container)
        write(plan, bound, remote, at, image)
        return Staged(plan, bound, image)
    except BaseException as e:
        left = _take_back(plan, transaction, remote, pulled, str(e))
        if isinstance(e, HostError) and (left or not isinstance(e, Refused)):
            raise Refused(f"{e}{left}") from e
        if isinstance(e, Lost):
            raise Lost(f"{e}{left}") from e
        raise


def _take_back(plan: Plan, transaction: str, remote: Remote, pulled: bool, why: str) -> str:
    """What a failed stage made; "" when it is gone, else the words that say so."""
    script = scripts.render_unstage(plan, Bound(transaction, ""), pulled, why)
    try:
        answer = remote.persist(script, within=120, tries=60)
    except Lost as e:
        return f"; the host was lost, and the next deploy removes what was staged ({e})"
    return "" if answer.status == 0 else f"; {said(answer.output)}"


def remake(
    plan: Plan,
    state: HostState,
    remote: Remote,
    api: DockerApi,
    progress: Callable[[Progress], None],
    say: Callable[[str], None],
) -> None:
    """Makes again what a rollback needs and somebody removed; it stays stopped. Its image comes
    with the controller's credentials. Raises HostError, Lost.
    """
    for gone in plan.remake:
        say(f"making {gone.name} again, which somebody removed")
        if gone.image:
            repository, digest = str(gone.image["repository"]), str(gone.image["digest"])
            if api.inspect_image(f"{repository}@{digest}") is None:
                say(f"pulling {repository}@{digest}")
                api.pull(repository, digest, _room(state), progress)
        answer = remote.run('exec sh "$1" by "$2"', (gone.script, plan.by), within=3900)
        if answer.status != 0:
            raise StepFailed(
                f"{gone.name} could not be made again: {said(answer.output)}", answer.status
            )


def unstage(staged: Staged, remote: Remote, why: str) -> bool:
    """Takes a staged release back that will not be armed. The image stays for the next try.

    False when it is armed after all: then only restore.sh takes it back. Raises HostError, Lost.
    """
    script = scripts.render_unstage(staged.plan, staged.bound, False, why)
    answer = remote.persist(script, within=120, tries=60)
    if answer.status not in (0, 5):
        raise HostError(f"what was staged could not be removed: {said(answer.output)}")
    return answer.status == 0


def _image(
    plan: Plan,
    state: HostState,
    api: DockerApi,
    progress: Callable[[Progress], None],
    say: Callable[[str], None],
) -> tuple[dict[str, Any], bool]:
    pin = plan.pin
    if pin is None:
        raise Refused("the plan has no pin")
    found = api.inspect_image(pin.reference)
    pulled = found is None
    if found is None:
        say(f"pulling {pin.reference}")
        room = _room(state)
        api.pull(pin.repository, pin.digest, room, progress)
        found = api.inspect_image(pin.reference)
    if found is None or not same_image(found.get("RepoDigests") or [], pin.repository, pin.digest):
        raise Refused(
            f"what arrived is not {pin.reference}: {(found or {}).get('RepoDigests') or 'nothing'}"
        )
    containerd = not isinstance(state.engine, Unknown) and state.engine.containerd_store
    ident = str(found["Id"])
    return {
        "repository": pin.repository,
        "tag": pin.tag,
        "digest": pin.digest,
        "source": pin.source,
        # Three digests that are told apart: the pin (of an index or of a platform's manifest), and
        # the engine's Id: of the config in the classic store, of a manifest in containerd's.
        "digest_kind": (kind := api.kind_of(pin.reference)),
        "id": ident,
        "id_kind": (kind if ident == pin.digest else "manifest") if containerd else "config",
        "store": "containerd" if containerd else "classic",
        "user": (found.get("Config") or {}).get("User") or "",
        "architecture": found.get("Architecture", ""),
        "size": int(found.get("Size") or 0),
        "pulled": pulled,
    }, pulled


def _room(state: HostState) -> int:
    if isinstance(state.engine, Unknown):
        return 0
    rooms = []
    for path in state.engine.image_roots:
        disk = state.disks.get(path)
        if disk is None or isinstance(disk, Unknown):
            raise Refused(f"how much room {path} has is not known")
        rooms.append(disk.free)
    return min(rooms)


def _create(plan: Plan, transaction: str, remote: Remote, image: Mapping[str, Any]) -> str:
    script = scripts.render_stage(
        plan, Bound(transaction, ""), str(image["user"]), secret_env(plan)
    )
    answer = _run(remote, script, "staging", within=400)
    last = answer.strip().splitlines()[-1].split()
    if len(last) != 2 or last[0] != "container" or len(last[1]) != 64:
        raise Refused(f"docker create named no container: {answer.strip()[-200:]}")
    return last[1]


def secret_env(plan: Plan) -> str:
    """Assignments for a shell to read, from the files on the controller."""
    out = []
    for variable, path in (plan.secrets or {}).items():
        value = Path(path).expanduser().read_text(encoding="utf-8").rstrip("\n")
        out.append(f"{variable}={shlex.quote(value)}\n")
    return "".join(out)


def write(plan: Plan, bound: Bound, remote: Remote, at: str, image: dict[str, Any] | None) -> None:
    """Writes scripts, records and notes into the release's directory and syncs them."""
    texts = dict(scripts.render(plan, bound, image))
    texts["NOTE.md"] = note.release(plan, bound, at)
    texts["release.json"] = record.release_json(plan, bound, at, image) + "\n"
    texts["records.json"] = record.records_json(plan) + "\n"
    for stop in plan.displaced:
        texts[f"displaced-{stop.container.id}.md"] = note.displaced(plan, stop, at)
    _run(remote, upload(release_dir(plan.service, plan.number), texts), "writing the scripts")


def add(remote: Remote, directory: str, texts: Mapping[str, str]) -> None:
    """More files for a staged release. Raises StepFailed, Lost."""
    _run(remote, upload(directory, texts), "writing " + ", ".join(texts))


def upload(directory: str, texts: Mapping[str, str]) -> str:
    """A script that writes these files. Their text is in its input, on no command line."""
    lines = ["set -e", "umask 077", f"cd {shlex.quote(directory)}"]
    for name, text in texts.items():
        end = f"end-{random.token_hex(8)}"
        mode = "0600" if places.private(name) else "0755" if name.endswith(".sh") else "0644"
        body = text if text.endswith("\n") or not text else text + "\n"
        # A run that dies here leaves no file that is cut short.
        lines.append(f"cat >.part <<'{end}'\n{body}{end}")
        lines.append(f"chmod {mode} .part")
        lines.append(f"mv -T .part {shlex.quote(name)}")
    lines.append("sync -- * . .. ../..")
    return "\n".join(lines) + "\n"


def _run(remote: Remote, script: str, what: str, within: float = 60) -> str:
    answer = remote.run(script, within=within)
    if answer.status != 0:
        raise StepFailed(
            f"{what} failed (status {answer.status}): {said(answer.output)}",
            answer.status,
            answer.output,
        )
    return answer.output
