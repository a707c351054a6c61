"""The HTTP side: routes, the key, keep-alive, streams. Bodies are made in info and generation."""

from __future__ import annotations

import http
import json
import socketserver
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from . import generation, info, log
from .server import Server, compact

OPEN_WITHOUT_KEY = ("/health", "/ready", "/metrics")
NOT_FOUND = {"detail": "Not Found"}


class HTTPServer(socketserver.ThreadingTCPServer):
    """Binds when made; raises OSError (EADDRINUSE) when somebody listens there."""

    allow_reuse_address = True  # past TIME_WAIT, as asyncio does; a listener still conflicts
    daemon_threads = True
    request_queue_size = 2048

    def __init__(self, server: Server) -> None:
        self.state = server
        super().__init__((server.args["host"], server.args["port"]), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nothing to report."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HTTPServer

    @property
    def state(self) -> Server:
        return self.server.state

    def do_GET(self) -> None:
        self._dispatch()

    def do_POST(self) -> None:
        self._dispatch()

    def _dispatch(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.state.stay_silent_if_frozen()
        path = urlsplit(self.path).path
        if not self._allowed(path):
            self._json({"error": "Unauthorized"}, 401)
        elif self.command == "POST" and path in generation.KINDS:
            with self.state.request():
                self._generate(path, body)
        elif path.startswith("/v1/models/"):
            name = path.removeprefix("/v1/models/")
            known = name == self.state.args["served_model_name"]
            self._json(
                info.model_card(self.state) if known else info.no_model(name), 200 if known else 404
            )
        elif path in ROUTES:
            ROUTES[path](self)
        else:
            self._json(NOT_FOUND, 404)

    def _allowed(self, path: str) -> bool:
        keys = [key for key in (self.state.args["api_key"],) if key]
        if not keys or path.startswith(OPEN_WITHOUT_KEY):
            return True
        return self.headers.get("Authorization") in [f"Bearer {key}" for key in keys]

    # --- flags and health

    def health(self) -> None:
        self._health(generates=self.state.knobs.health_generates)

    def health_generate(self) -> None:
        self._health(generates=True)

    def _health(self, generates: bool) -> None:
        state = self.state
        if state.draining:
            log.line("Health check request received during shutdown. Returning 503.")
        if state.draining or state.status == "Starting":
            self._empty(503)
        else:
            self._empty(200 if not generates or state.healthy() else 503)

    def ready(self) -> None:
        if self.state.knobs.version < (0, 5, 23):
            self._json(NOT_FOUND, 404)
        else:
            self._empty(200 if self.state.status == "Up" and not self.state.draining else 503)

    def ping(self) -> None:
        if self.state.knobs.version < (0, 5, 23):
            self._empty(200)
        else:
            self.ready()

    # --- what it says of itself

    def root(self) -> None:
        self._json("SGLang is running")

    def model_info(self) -> None:
        self._json(info.model_info(self.state))

    def server_info(self) -> None:
        self._json(info.server_info(self.state))

    def models(self) -> None:
        self._json(info.models(self.state))

    def loads(self) -> None:
        self._json(info.loads(self.state))

    def metrics(self) -> None:
        if self.state.args["enable_metrics"]:
            self._text(info.metrics(self.state))
        else:
            self._json(NOT_FOUND, 404)

    def flush_cache(self) -> None:
        if self.state.running:
            self._text("Cache not flushed: requests are running.\n", 400)
        else:
            self._text(
                "Cache flushed.\nPlease check backend logs for more details. (When there are "
                "running or waiting requests, the operation will not be performed.)\n"
            )

    def freeze_gc(self) -> None:
        self._text("Garbage collection frozen.\n")

    # --- generation

    def _generate(self, kind: str, body: bytes) -> None:
        if self.state.lie == "500":
            self._error(500, "Internal server error: CUDA error", "InternalServerError")
            return
        try:
            asked = json.loads(body)
            if not isinstance(asked, dict):
                raise generation.BadRequest("body: Input should be a valid dictionary")
            answer = generation.begin(self.state, kind, asked)
        except (ValueError, generation.BadRequest) as error:
            self._error(400, str(error), "BadRequestError")
            return
        if answer.stream:
            self._stream(generation.chunks(answer))
        else:
            whole = generation.whole(answer)
            self.state.stay_silent_if_frozen()
            self._json(whole)

    def _stream(self, chunks: Iterator[generation.Body]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.state.stay_silent_if_frozen()
            self._event(compact(chunk))
        self._event(b"[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: bytes) -> None:
        event = b"data: " + data + b"\n\n"
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")

    def _error(self, status: int, message: str, kind: str) -> None:
        body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
        self._json(body, status)

    # --- sending

    def _json(self, body: object, status: int = 200) -> None:
        self._send(status, compact(body), "application/json")

    def _text(self, text: str, status: int = 200) -> None:
        self._send(status, text.encode(), "text/plain; charset=utf-8")

    def _empty(self, status: int) -> None:
        self._send(status, b"", None)

    def _send(self, status: int, body: bytes, kind: str | None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if kind:
            self.send_header("Content-Type", kind)
        self._headers_buffer.append(b"\r\n")  # type: ignore[attr-defined]
        self._headers_buffer.append(body)  # type: ignore[attr-defined]
        self.flush_headers()

    def send_response(self, code: int, message: str | None = None) -> None:
        self.log_request(code)
        self.send_response_only(code, message)
        self.send_header("Server", "uvicorn")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        phrase = http.HTTPStatus(int(code)).phrase
        log.access(client, f"{self.command} {self.path}", int(code), phrase)

    def log_message(self, format: str, *args: object) -> None:
        """Only whole requests are logged."""


ROUTES: dict[str, Callable[[Handler], None]] = {
    "/": Handler.root,
    "/health": Handler.health,
    "/health_generate": Handler.health_generate,
    "/ready": Handler.ready,
    "/ping": Handler.ping,
    "/model_info": Handler.model_info,
    "/get_model_info": Handler.model_info,
    "/server_info": Handler.server_info,
    "/get_server_info": Handler.server_info,
    "/v1/models": Handler.models,
    "/v1/loads": Handler.loads,
    "/metrics": Handler.metrics,
    "/flush_cache": Handler.flush_cache,
    "/freeze_gc": Handler.freeze_gc,
}
