"""The seam to HTTP on a host: requests to an engine over the SSH connection.

No port need be open and no curl be there. sshd may forbid forwarding; then the request is made by
Python inside the container. Which of the two works is proved before anything is stopped.
"""

from __future__ import annotations

import http.client
import json
import shlex
from dataclasses import dataclass
from typing import Any

import gevent
import paramiko

from rollpin.errors import HostError, Lost
from rollpin.remote import Remote, deadline


class NoAnswer(HostError):
    """The engine gave no answer in time, or the connection broke off: it may be hanging."""


class NotListening(HostError):
    """Nobody listens on the port."""


class Forbidden(HostError):
    """sshd does not forward TCP."""


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


@dataclass(frozen=True)
class _Ask:
    method: str
    path: str
    port: int
    body: str | None
    within: float
    key: str | None

    def headers(self) -> dict[str, str]:
        out = {"Content-Type": "application/json"}
        if self.key:
            out["Authorization"] = f"Bearer {self.key}"
        return out


_IN_CONTAINER = r"""
import http.client, json, sys
ask = json.load(sys.stdin)
try:
    c = http.client.HTTPConnection("127.0.0.1", ask["port"], timeout=ask["timeout"])
    c.request(ask["method"], ask["path"], ask["body"], ask["headers"])
    r = c.getresponse()
    print(json.dumps({"status": r.status, "body": r.read().decode(errors="replace")}))
except ConnectionRefusedError:
    print(json.dumps({"refused": True}))
except Exception as e:
    print(json.dumps({"error": repr(e)}))
"""


class Probe:
    """Requests to 127.0.0.1:port of the host."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.by_exec = False

    def prove(self, port: int) -> None:
        """Finds out whether sshd forwards. A refusal by the port itself is proof enough."""
        try:
            self._forward(_Ask("GET", "/", port, None, 10.0, None))
        except Forbidden:
            self.by_exec = True
        except HostError:
            pass

    def request(
        self,
        method: str,
        path: str,
        port: int,
        container: str,
        body: Any = None,
        within: float = 10.0,
        key: str | None = None,
    ) -> Response:
        """One request. Raises NotListening, NoAnswer (the engine's fault) or Lost (the host's)."""
        text = None if body is None else json.dumps(body)
        ask = _Ask(method, path, port, text, within, key)
        if self.by_exec:
            return self._exec(ask, container)
        try:
            return self._forward(ask)
        except Forbidden:
            self.by_exec = True
            return self._exec(ask, container)

    def _forward(self, ask: _Ask) -> Response:
        method, path, within = ask.method, ask.path, ask.within
        channel = self._channel(ask.port)
        timer = gevent.Timeout(within)
        try:
            with timer:
                connection = http.client.HTTPConnection("127.0.0.1", ask.port)
                connection.sock = channel
                connection.request(method, path, ask.body, ask.headers())
                response = connection.getresponse()
                return Response(response.status, response.read())
        except gevent.Timeout as e:
            if e is not timer:
                raise  # the deadline of who asked
            # Is it the engine that is silent, or the host?
            self.remote.run("true", within=10)
            raise NoAnswer(f"{method} {path}: no answer within {within:g} s") from e
        except (http.client.HTTPException, OSError, EOFError) as e:
            self.remote.run("true", within=10)
            raise NoAnswer(f"{method} {path}: {type(e).__name__} {e}".rstrip()) from e
        finally:
            channel.close()

    def _channel(self, port: int) -> paramiko.Channel:
        try:
            with deadline(15, f"{self.remote.name}: opening a channel to port {port}"):
                return self.remote.transport().open_channel(
                    "direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0), timeout=12
                )
        except paramiko.ChannelException as e:
            if e.code == 1:
                raise Forbidden(f"{self.remote.name}: sshd forbids TCP forwarding") from e
            raise NotListening(f"nobody listens on port {port}") from e
        except (paramiko.SSHException, OSError, EOFError) as e:
            self.remote.drop()
            raise Lost(f"{self.remote.name}: the connection was lost ({e})") from e
        except Lost:
            self.remote.drop()
            raise

    def _exec(self, ask: _Ask, container: str) -> Response:
        argv = ("docker", "exec", "-i", container, "python3", "-c", _IN_CONTAINER)
        value: dict[str, Any] = {
            "method": ask.method,
            "path": ask.path,
            "port": ask.port,
            "timeout": ask.within,
            "body": ask.body,
            "headers": ask.headers(),
        }
        # On standard input: a key is on no command line.
        script = f"{shlex.join(argv)} <<'end-of-question'\n{json.dumps(value)}\nend-of-question\n"
        answer = self.remote.run(script, within=ask.within + 20)
        lines = [x for x in answer.output.splitlines() if x.startswith("{")]
        if answer.status != 0 or not lines:
            raise NotListening(f"docker exec in {container[:12]} failed: {answer.output.strip()}")
        value = json.loads(lines[-1])
        if value.get("refused"):
            raise NotListening(f"nobody listens on port {ask.port}")
        if "error" in value:
            raise NoAnswer(f"{ask.method} {ask.path}: {value['error']}")
        return Response(int(value["status"]), str(value["body"]).encode())
