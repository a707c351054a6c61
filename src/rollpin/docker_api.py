"""The seam to the Docker SDK: the host's engine over pyinfra's own SSH connection.

`docker system dial-stdio` carries the engine's HTTP. Registry credentials are the controller's;
they travel with the one request and never land on the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import docker
import docker.auth
import docker.errors
import gevent
import paramiko
import requests.exceptions
from docker.transport import SSHHTTPAdapter
from docker.transport.sshconn import SSHConnection, SSHConnectionPool
from gevent.queue import Empty, Queue

from rollpin.errors import HostError, Lost
from rollpin.observe import WAS
from rollpin.remote import Remote, deadline

CALL_DEADLINE = 60.0
SILENCE = 15.0
STALL_DEADLINE = 1800.0


class _Connection(SSHConnection):
    remote: Remote

    def connect(self) -> None:
        sock = self.remote.transport().open_session(timeout=20)
        sock.settimeout(self.timeout)
        sock.exec_command(self.remote.command(("docker", "system", "dial-stdio")))
        self.sock = sock


class _Pool(SSHConnectionPool):
    def __init__(self, remote: Remote, timeout: float) -> None:
        super().__init__(ssh_client=None, timeout=timeout, maxsize=2, host="localhost")
        self.remote = remote

    def _new_conn(self) -> _Connection:
        connection = _Connection(None, self.timeout, "localhost")
        connection.remote = self.remote
        return connection


class _Adapter(SSHHTTPAdapter):
    """docker-py's adapter closes the client it is given and reconnects with its own parameters:
    this one borrows pyinfra's connection and closes only its channels. Two channels at most, for
    sshd's MaxSessions is 10.
    """

    def __init__(self, remote: Remote, timeout: float) -> None:
        self.remote = remote
        super().__init__("ssh://localhost", timeout=timeout, max_pool_size=2, shell_out=True)

    def get_connection(self, url: Any, proxies: Any = None) -> _Pool:
        with self.pools.lock:
            pool: _Pool | None = self.pools.get(url)
            if pool is None:
                pool = self.pools[url] = _Pool(self.remote, self.timeout)
            return pool

    def close(self) -> None:
        self.pools.clear()


@dataclass(frozen=True)
class Progress:
    """Bytes of a pull so far. `total` grows while layers are discovered."""

    done: int
    total: int
    layers: int


class DockerApi:
    """One host's engine. Every call has a deadline and raises HostError or Lost."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self._client: docker.APIClient | None = None

    def _api(self) -> docker.APIClient:
        if self._client is None:
            client = docker.APIClient(base_url="http://localhost:2375", version="1.41", timeout=60)
            # Each call has a deadline of ours; a pull may be silent for longer than any of them.
            adapter = _Adapter(self.remote, STALL_DEADLINE)
            client.mount("http+docker://ssh", adapter)
            client.base_url = "http+docker://ssh"
            # As new as both sides are: engines drop old versions.
            client._version = client._retrieve_server_version()
            self._client = client
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    @contextmanager
    def _call(self, what: str, seconds: float = CALL_DEADLINE) -> Iterator[docker.APIClient]:
        try:
            with deadline(seconds, f"{self.remote.name}: {what}"):
                yield self._api()
        except docker.errors.NotFound as e:
            raise HostError(f"{self.remote.name}: {what}: not found: {e.explanation}") from e
        except docker.errors.DockerException as e:
            raise HostError(f"{self.remote.name}: {what}: {e}") from e
        except (
            requests.exceptions.RequestException,
            paramiko.SSHException,  # no channel: docker-py lets it through as it is
            OSError,
            EOFError,
        ) as e:
            self.close()
            raise Lost(f"{self.remote.name}: {what}: {e}") from e

    def tag_digest(self, repository: str, tag: str) -> tuple[str, str]:
        """(digest, media type) of what the tag points to now, as the host's engine sees it."""
        with self._call(f"asking the registry for {repository}:{tag}") as api:
            found = api.inspect_distribution(f"{repository}:{tag}", self._auth(api, repository))
        descriptor = found["Descriptor"]
        return str(descriptor["digest"]), str(descriptor.get("mediaType", ""))

    def kind_of(self, reference: str) -> str:
        """What the digest in the reference names, as the registry tells: an index (a list of
        platforms) or a single platform's manifest. "unknown" when it does not tell.
        """
        try:
            with self._call(f"asking the registry what {reference} is") as api:
                auth = self._auth(api, reference.partition("@")[0])
                found = api.inspect_distribution(reference, auth)
        except (HostError, Lost):
            return "unknown"
        media = str(found["Descriptor"].get("mediaType", ""))
        return "index" if "index" in media or "manifest.list" in media else "manifest"

    def inspect_image(self, reference: str) -> dict[str, Any] | None:
        """None when the engine says that it has no such image."""
        try:
            with self._call(f"inspecting {reference}") as api:
                return dict(api.inspect_image(reference))
        except HostError as e:
            if isinstance(e.__cause__, docker.errors.NotFound):
                return None
            raise

    def inspect_container(self, ident: str) -> dict[str, Any] | None:
        """None when the engine says that it has no such container."""
        try:
            with self._call(f"inspecting container {ident[:12]}", 15) as api:
                return dict(api.inspect_container(ident))
        except HostError as e:
            if isinstance(e.__cause__, docker.errors.NotFound):
                return None
            raise

    def find_container(self, ident: str) -> dict[str, Any] | None:
        """The container of that id, or the one that was made again in its place."""
        if found := self.inspect_container(ident):
            return found
        with self._call(f"looking for {ident[:12]}", 15) as api:
            made = api.containers(all=True, filters={"label": [f"{WAS}.{ident}"]})
        return self.inspect_container(str(made[0]["Id"])) if made else None

    def alive(self) -> list[dict[str, Any]]:
        """Every container that is not stopped, as `docker ps` lists it: Id, Names, Labels, Created
        (seconds since 1970)."""
        with self._call("listing the containers", 15) as api:
            return [dict(c) for c in api.containers()]

    def logs(self, ident: str, tail: int) -> str:
        with self._call(f"reading the log of {ident[:12]}", 30) as api:
            raw = api.logs(ident, stdout=True, stderr=True, tail=tail)
        return bytes(raw).decode(errors="replace")

    def pull(
        self, repository: str, digest: str, room: int, progress: Callable[[Progress], None]
    ) -> None:
        """Pulls by digest. Ends with HostError before the disk fills: `room` is the number of
        bytes that may be downloaded (an extracted layer takes about twice its compressed size).
        """
        sizes: dict[str, int] = {}
        done: dict[str, int] = {}
        what = f"pulling {repository}@{digest}"
        with self._call(what, 24 * 3600) as api, ExitStack() as stack:
            auth = self._auth(api, repository)
            pull = partial(api.pull, repository, digest, stream=True, decode=True, auth_config=auth)
            for event in stack.enter_context(closing(self._lively(pull, what))):
                if "error" in event:
                    raise HostError(f"{self.remote.name}: {what}: {event['error']}")
                layer, detail = event.get("id", ""), event.get("progressDetail") or {}
                if event.get("status") == "Downloading" and detail.get("total"):
                    sizes[layer], done[layer] = int(detail["total"]), int(detail["current"])
                elif event.get("status") in ("Download complete", "Pull complete"):
                    done[layer] = sizes.get(layer, 0)
                total = sum(sizes.values())
                if total * 3 > room:
                    raise HostError(
                        f"{self.remote.name}: {what}: its layers have {total / 1e9:.1f} GB and need"
                        f" three times that while they are unpacked; {room / 1e9:.1f} GB are free"
                    )
                progress(Progress(sum(done.values()), total, len(sizes)))

    def _lively(
        self, start: Callable[[], Iterable[dict[str, Any]]], what: str
    ) -> Generator[dict[str, Any], None, None]:
        """The events, as long as they come. A big layer is unpacked in silence: whether the host
        is still there is asked meanwhile. Raises Lost.
        """
        events = Queue()

        def read() -> None:
            try:
                for event in start():  # the request itself may stay without an answer
                    events.put(event)
                events.put(None)
            except Exception as e:  # raised where the events are read
                events.put(e)

        reader = gevent.spawn(read)
        silent = 0.0
        try:
            while True:
                try:
                    event = events.get(timeout=SILENCE)
                except Empty:
                    silent += SILENCE
                    self.remote.run("true", within=15)
                    if silent >= STALL_DEADLINE:
                        raise Lost(f"{self.remote.name}: {what}: silent for {silent:g} s") from None
                    continue
                silent = 0.0
                if isinstance(event, Exception):
                    raise event
                if event is None:
                    return
                yield event
        finally:
            reader.kill(block=False)

    @staticmethod
    def _auth(api: docker.APIClient, repository: str) -> dict[str, Any] | None:
        registry, _ = docker.auth.resolve_repository_name(repository)
        found = docker.auth.resolve_authconfig(api._auth_configs, registry)
        return dict(found) if found else None


def same_image(repo_digests: list[str], repository: str, digest: str) -> bool:
    """Did what was asked for arrive? The engine notes the digest it was asked for by repository."""
    bare = re.sub(r"^(docker\.io|index\.docker\.io)/(library/)?", "", repository)
    return any(
        re.sub(r"^(docker\.io|index\.docker\.io)/(library/)?", "", d) == f"{bare}@{digest}"
        for d in repo_digests
    )
