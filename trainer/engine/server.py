"""``train-rl serve``: the local engine behind vLLM 0.32's own routes.

For machines without a GPU, for small models, and as the double of vLLM in tests; the client
(`trainer.engine.served`) does not know the difference. A subset: one completion a request, no
text, weights from a folder (``/collective_rpc`` with ``reload_weights``).

    train-rl serve MODEL --host 127.0.0.1 --port 8000

Whoever reaches the port can change the weights: it belongs on a private network.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from curvefit._version import __version__
from trainer.engine.messages import GENERATE, digest, write_answer
from trainer.engine.service import Service
from trainer.errors import ConfigError, EngineError, TrainerError

if TYPE_CHECKING:
    from trainer.engine.faults import Faults

__all__ = ["Server", "main", "open_server"]

MAX_BODY = 64 * 2**20


class Server(ThreadingHTTPServer):
    """A service on a port; every request has a thread.

    Parameters
    ----------
    address : tuple of str and int
        Port 0 takes a free one.
    service : Service
    model : str
        Name that is told to clients.
    faults : Faults or None
        What to do wrong, for tests.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self,
        address: tuple[str, int],
        service: Service,
        model: str,
        faults: Faults | None = None,
    ) -> None:
        self.service, self.model, self.faults = service, model, faults
        try:
            super().__init__(address, _Handler)
        except OSError as e:
            host, port = address
            raise EngineError(
                f"cannot listen on {host}:{port}: {e.strerror}; give another --port or --host"
            ) from e

    @property
    def address(self) -> str:
        """``host:port`` that it listens on."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line what went wrong; a client that has gone away is no error."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"train-rl serve: {client_address}: {error!r}", file=sys.stderr, flush=True)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer what asks for something."""
        self._answer(GET, {})

    def do_POST(self) -> None:
        """Answer what does something."""
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self._write(413, {"error": {"message": f"a body of {length} bytes is too long"}})
            return
        content = self.rfile.read(length)
        try:
            body = json.loads(content) if content.strip() else {}
        except ValueError:
            self._write(400, {"error": {"message": "the body is not JSON"}})
            return
        self._answer(POST, body)

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: there are thousands of requests."""

    def _answer(self, routes: dict[str, Callable[..., Any]], body: Any) -> None:
        url = urlsplit(self.path)
        route = routes.get(url.path)
        if route is None:
            self._write(404, {"error": {"message": f"no route {url.path}"}})
            return
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        faults, work = self.server.faults, partial(route, self.server, body, query)
        try:
            status, answer = 200, work() if faults is None else faults.apply(url.path, work)
        except Exception as e:
            status, answer = _refusal(url.path, e)
        self._write(status, answer)

    def _write(self, status: int, answer: Any) -> None:
        content = json.dumps(answer, allow_nan=False).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _refusal(path: str, error: Exception) -> tuple[int, Any]:
    """Status and reason of an error: 400 for a request that cannot be served, else 500."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, KeyError):
        line = f"{line} is missing"
    asked = path == GENERATE and isinstance(error, KeyError | TypeError | ValueError)
    return 400 if asked else 500, {"error": {"message": line}}


# ---------------------------------------------------------------------- routes


def _models(server: Server, body: Any, query: dict[str, str]) -> Any:
    engine = server.service.engine
    card = {
        "id": server.model,
        "object": "model",
        "owned_by": "train-rl",
        "max_model_len": engine.max_length,
        "shapes": digest(engine.decoder.shapes),
    }
    return {"object": "list", "data": [card]}


def _generate(server: Server, body: Any, query: dict[str, str]) -> Any:
    params = body["sampling_params"]
    completion = server.service.complete(body)
    if params.get("top_k") == 1:  # of the distribution drawn from, the token has probability 1
        completion.logprobs[:] = [0.0] * len(completion.ids)
    scores = None
    if params.get("prompt_logprobs") is not None:
        scores = server.service.score(body["token_ids"])
    spans = server.service.spans(completion)
    return write_answer(completion, spans, scores, body["token_ids"])


def _pause(server: Server, body: Any, query: dict[str, str]) -> Any:
    if query.get("mode", "abort") != "keep":
        raise ValueError("only mode=keep is served here")
    server.service.pause(query.get("clear_cache", "true") == "false")
    return {"status": "paused"}


def _resume(server: Server, body: Any, query: dict[str, str]) -> Any:
    server.service.resume()
    return {"status": "resumed"}


def _collective(server: Server, body: Any, query: dict[str, str]) -> Any:
    if body["method"] != "reload_weights":
        raise ValueError(f"method {body['method']} is not served here")
    server.service.load(body["kwargs"]["weights_path"])
    return {"results": [None]}


def _name(server: Server, body: Any, query: dict[str, str]) -> Any:
    server.service.name(str(body["new_version"]))
    return {"success": True, "new_version": body["new_version"]}


GET: dict[str, Callable[[Server, Any, dict[str, str]], Any]] = {
    "/health": lambda server, body, query: {},
    "/version": lambda server, body, query: {"version": __version__},
    "/v1/models": _models,
    "/is_paused": lambda server, body, query: {"is_paused": server.service.paused},
    "/weight_info": lambda server, body, query: {"weight_version": server.service.label},
    "/get_world_size": lambda server, body, query: {"world_size": 1},
}
POST: dict[str, Callable[[Server, Any, dict[str, str]], Any]] = {
    GENERATE: _generate,
    "/pause": _pause,
    "/resume": _resume,
    "/collective_rpc": _collective,
    "/update_weight_version": _name,
}


# ---------------------------------------------------------------------- the command


@dataclass(frozen=True)
class Options:
    """What the command takes, each with its default and meaning."""

    host: str = "127.0.0.1"
    port: int = 8000
    device: str = "cpu"
    dtype: str = "float32"
    slots: int = 512
    max_length: int = 0
    threads: int = 1


USAGE = """usage: train-rl serve MODEL_DIR [--key VALUE]...

Serve a model to train-rl --engine.addresses HOST:PORT, over vLLM's own routes.

  --host (127.0.0.1)    address to listen on; whoever reaches it can change the weights
  --port (8000)         0: a free one, which is printed
  --device (cpu)        cpu or cuda
  --dtype (float32)     of the weights; the head is float32
  --slots (512)         requests that run at the same time; further ones wait
  --max-length (0)      longest prompt plus completion; 0: the model's own limit
  --threads (1)         torch threads"""


def open_server(
    directory: str | Path, options: Options | None = None, *, faults: Faults | None = None
) -> Server:
    """A server that listens and, once ``serve_forever`` runs, answers."""
    import torch

    from trainer.engine.local import LocalEngine

    o = options or Options()
    torch.set_num_threads(o.threads)
    engine = LocalEngine.from_directory(
        directory,
        device=o.device,
        dtype=o.dtype,
        slots=o.slots,
        max_length=o.max_length or None,
    )
    return Server((o.host, o.port), Service(engine), str(directory), faults)


def main(argv: list[str]) -> int:
    """Run ``train-rl serve``; return the exit code."""
    if "-h" in argv or "--help" in argv:
        print(USAGE)
        return 0
    try:
        directory, options = _parse(argv)
        server = open_server(directory, options)
    except TrainerError as e:
        print(f"train-rl serve: {e}", file=sys.stderr)
        return e.exit_code
    print(server.address, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 130
    return 0


def _parse(argv: list[str]) -> tuple[str, Options]:
    """The model directory and the options."""
    from dataclasses import fields, replace

    known = {f"--{f.name.replace('_', '-')}": f for f in fields(Options)}
    directory, options, words = "", Options(), list(argv)
    while words:
        name, eq, value = words.pop(0).partition("=")
        if not name.startswith("--"):
            if directory:
                raise ConfigError(f"two models, {directory} and {name}: give one directory")
            directory = name
            continue
        if name not in known:
            raise ConfigError(f"unknown option {name}; there are {', '.join(known)}")
        if not eq and not words:
            raise ConfigError(f"{name} needs a value")
        value = value if eq else words.pop(0)
        kind = type(known[name].default)
        try:
            options = replace(options, **{known[name].name: kind(value)})
        except ValueError as e:
            raise ConfigError(f"{name} = {value} is no {kind.__name__}") from e
    if not directory:
        raise ConfigError("name the model directory: train-rl serve MODEL_DIR")
    return directory, options
