"""The seam to a host's shell: scripts over pyinfra's SSH connection, each with a deadline.

pyinfra's own timeouts abandon the remote process, and paramiko waits for ever for an answer to
`exec`: here every step ends within its deadline, raising `Lost`, and the next one reconnects.
A script travels on standard input, so nothing of it is on a command line.
"""

from __future__ import annotations

import logging
import shlex
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import gevent
import paramiko
from gevent.lock import RLock
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from rollpin.errors import HostError, Lost

# It logs every refused channel as an error; here a refused port is an answer.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

T = TypeVar("T")

CONNECT_DEADLINE = 20.0
STEP_DEADLINE = 60.0
DEAD_AFTER_MS = 15_000
KEEPALIVE = 5  # seconds


@dataclass(frozen=True)
class Answer:
    """How a script ended, and what it said on both streams."""

    status: int
    output: str


@contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Raises Lost when the block has not ended in time."""
    timer = gevent.Timeout(seconds)
    timer.start()
    try:
        yield
    except gevent.Timeout as e:
        if e is not timer:
            raise
        raise Lost(f"{what}: no answer within {seconds:g} s") from e
    finally:
        timer.close()


class at_most:
    """Leaves the block after so many seconds, without an error."""

    def __init__(self, seconds: float) -> None:
        self._timer = gevent.Timeout(seconds, False)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._timer.close()
        return error is self._timer


class Remote:
    """One host, as root (through password-less sudo when `sudo`)."""

    def __init__(self, host: Any, sudo: bool) -> None:
        self.host = host
        self.sudo = sudo
        self._lock = RLock()

    @property
    def name(self) -> str:
        return str(self.host.name)

    def transport(self) -> paramiko.Transport:
        """A live transport; reconnects when the last one died. Raises Lost."""
        with self._lock:
            client = getattr(self.host.connector, "client", None)
            transport = client.get_transport() if client is not None else None
            if transport is None or not transport.is_active():
                self._connect()
                transport = self.host.connector.client.get_transport()
            if not isinstance(transport, paramiko.Transport):
                raise Lost(f"{self.name}: the connection closed at once")
            self._tell_death(transport)
            return transport

    def _connect(self) -> None:
        if not hasattr(self.host.connector, "make_paramiko_kwargs"):
            raise HostError(
                f"{self.name}: rollpin needs an SSH connection, not {self.host.connector}"
            )
        with deadline(CONNECT_DEADLINE, f"{self.name}: connecting"):
            try:
                self.host.connector.connect()
            except Exception as e:  # ConnectError, or what paramiko leaves untranslated
                raise Lost(f"{self.name}: cannot connect: {e}") from e

    @staticmethod
    def _tell_death(transport: paramiko.Transport) -> None:
        """Unacknowledged bytes end the connection. Paramiko's keepalive detects nothing, but
        sends some, also while a script on the host says nothing.
        """
        sock = transport.sock
        if isinstance(sock, socket.socket):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
            transport.set_keepalive(KEEPALIVE)

    def drop(self) -> None:
        """Give the connection up without waiting for it; the next step makes a new one."""
        client = getattr(self.host.connector, "client", None)
        transport = client.get_transport() if client is not None else None
        if transport is not None:
            transport.active = False
            transport.packetizer.close()
            gevent.spawn(transport.close)

    def command(self, argv: Sequence[str]) -> str:
        return shlex.join((*(("sudo", "-n", "-H") if self.sudo else ()), *argv))

    def run(self, script: str, args: Sequence[str] = (), within: float = STEP_DEADLINE) -> Answer:
        """Runs the text of a script as `sh -s ARGS`. Raises Lost; never judges the status."""
        what = f"{self.name}: {script.lstrip().splitlines()[0][:60]}"
        try:
            with deadline(within, what):
                return self._run(script, args)
        except (paramiko.SSHException, OSError, EOFError) as e:
            self.drop()
            raise Lost(f"{self.name}: the connection was lost ({e})") from e
        except Lost:
            self.drop()
            raise

    def _run(self, script: str, args: Sequence[str]) -> Answer:
        transport = self.transport()
        channel = transport.open_session(timeout=CONNECT_DEADLINE)
        try:
            channel.set_combine_stderr(True)
            channel.exec_command(self.command(("sh", "-s", *args)))
            channel.sendall(script.encode())
            channel.shutdown_write()
            chunks = []
            while chunk := channel.recv(65536):
                chunks.append(chunk)
            status = channel.recv_exit_status()
            # Without a status: the script was ended by a signal, or the connection died.
            if status == -1 and not (channel.eof_received and transport.is_active()):
                raise EOFError("it closed before the script ended")
            return Answer(status, b"".join(chunks).decode(errors="replace"))
        finally:
            channel.close()

    def persist(
        self,
        script: str,
        args: Sequence[str] = (),
        within: float = STEP_DEADLINE,
        tries: float = 120,
    ) -> Answer:
        """`run`, again and again over lost connections for `tries` seconds. For what may be
        run twice. Raises Lost when the time is up.
        """
        return patiently(tries, lambda: self.run(script, args, within))


def until(seconds: float, pause: float) -> Iterator[None]:
    """Once, and again every `pause` seconds until `seconds` are over."""
    end = time.monotonic() + seconds
    yield
    while time.monotonic() < end:
        gevent.sleep(pause)
        yield


def patiently(tries: float, step: Callable[[], T]) -> T:
    """`step`, again after every Lost, for `tries` seconds; then the last Lost."""
    again: Retrying = Retrying(
        retry=retry_if_exception_type(Lost),
        stop=stop_after_delay(tries),
        wait=wait_fixed(0.5),
        sleep=gevent.sleep,
        reraise=True,
    )
    return again(step)
