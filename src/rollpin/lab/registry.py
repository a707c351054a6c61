"""The lab's registry: Debian's docker-registry on the bridge's address, and how to talk to it."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
from pathlib import Path

from rollpin.errors import LabError
from rollpin.lab import network, process
from rollpin.lab.machine import program
from rollpin.lab.state import CACHE, Lab

INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
REPOSITORY = "lmsysorg/sglang"


def folder(lab: Lab) -> Path:
    return lab.directory / "registry"


def find(lab: Lab) -> process.Process | None:
    """The registry's process, or None."""
    for candidate in process.of_folder(folder(lab)):
        if Path(candidate.argv[0]).name == "docker-registry" and candidate.alive():
            return candidate
    return None


def up(lab: Lab, deadline: float = 10) -> bool:
    """Start the registry unless it answers; returns whether it was started."""
    if find(lab) and _answers(lab):
        return False
    down(lab)
    own = folder(lab)
    (own / "data").mkdir(parents=True, exist_ok=True)
    configuration = own / "config.yml"
    # JSON is YAML
    configuration.write_text(
        json.dumps(
            {
                "version": 0.1,
                "log": {"level": "warn"},
                "storage": {
                    "filesystem": {"rootdirectory": str(own / "data")},
                    "delete": {"enabled": True},
                },
                "http": {"addr": lab.registry, "secret": "lab"},
            },
            indent=2,
        )
        + "\n"
    )
    process.detach(
        [program("docker-registry", CACHE), "serve", str(configuration)], own / "registry.log"
    )
    end = time.monotonic() + deadline
    while not _answers(lab):
        if time.monotonic() > end:
            raise LabError(
                f"The registry does not answer on {lab.registry}: see {own / 'registry.log'}"
            )
        time.sleep(0.05)
    return True


def down(lab: Lab) -> None:
    process.kill_folder(folder(lab))


def _answers(lab: Lab) -> bool:
    try:
        return _ask(lab, "GET", "/v2/")[0] == 200
    except OSError:
        return False


def _ask(
    lab: Lab,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(lab.registry, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read()
    finally:
        connection.close()


def ask(
    lab: Lab,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    kind: str | None = None,
    expected: tuple[int, ...] = (200,),
) -> tuple[int, dict[str, str], bytes]:
    """One request below /v2/lmsysorg/sglang/. Status, headers (lower case), body.

    Raises LabError when the registry cannot be reached or its status is not an expected one.
    """
    network.require(lab)
    address = path if path.startswith("/v2/") else f"/v2/{REPOSITORY}/{path}"
    headers = {"Accept": f"{INDEX}, {MANIFEST}"} | ({"Content-Type": kind} if kind else {})
    try:
        answer = _ask(lab, method, address, body, headers)
    except OSError as error:
        raise LabError(f"The registry {lab.registry} does not answer: {error}") from error
    if answer[0] not in expected:
        raise LabError(f"The registry said {answer[0]} to {method} {address}: {answer[2]!r}")
    return answer


def digest_of(lab: Lab, tag: str) -> str | None:
    """The digest that the registry reports for a tag, or None when it has no such tag."""
    status, headers, _ = ask(lab, "HEAD", f"manifests/{tag}", expected=(200, 404))
    return headers["docker-content-digest"] if status == 200 else None


def push_blob(lab: Lab, content: bytes) -> str:
    """Store a blob unless it is there; returns its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if ask(lab, "HEAD", f"blobs/{digest}", expected=(200, 404))[0] == 200:
        return digest
    _, headers, _ = ask(lab, "POST", "blobs/uploads/", body=b"", expected=(202,))
    location = headers["location"]
    path = location.split(lab.registry, 1)[1] if lab.registry in location else location
    joint = "&" if "?" in path else "?"
    ask(
        lab, "PUT", f"{path}{joint}digest={digest}", body=content,
        kind="application/octet-stream", expected=(201,),
    )  # fmt: skip
    return digest


def push_manifest(lab: Lab, reference: str, kind: str, content: bytes) -> str:
    """Store a manifest under a tag or digest; returns its digest as the registry reports it."""
    _, headers, _ = ask(
        lab, "PUT", f"manifests/{reference}", body=content, kind=kind, expected=(201,)
    )
    return headers["docker-content-digest"]
