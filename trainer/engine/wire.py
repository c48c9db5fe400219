"""Calls to one HTTP server: JSON in, JSON out, a deadline on each, failures that name the phase.

Made of the standard library's `http.client`, one connection a call in flight. A client on one
asyncio loop would need a further package and, with 512 requests in flight, takes ten times the
processor time (`docs/log.md`); a thread that waits takes none.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from trainer.errors import ConfigError, EngineError

__all__ = ["Connection", "ServerFault", "Wire", "split_address"]

STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
CONNECT_S = 5.0  # a machine that does not even take a connection in this time is not there


class ServerFault(EngineError):
    """A call to a server failed.

    Parameters
    ----------
    phase, address, reason : str
    status : int or None
        The HTTP status, when there was one: the server lives and says no.
    """

    def __init__(self, phase: str, address: str, reason: str, status: int | None = None) -> None:
        super().__init__(f"{phase}: {address}: {reason}")
        self.phase, self.address, self.reason, self.status = phase, address, reason, status

    @property
    def refused(self) -> bool:
        """The request itself is at fault (status 4xx): no other server would take it either."""
        return self.status is not None and 400 <= self.status < 500


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; ``http://`` before and ``/`` behind are fine.

    >>> split_address("http://node7:8000/"), split_address("[::1]:8001")
    (('node7', 8000), ('::1', 8001))
    """
    bare = address.removeprefix("http://").rstrip("/")
    host, _, port = bare.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise ConfigError(f"engine.addresses: {address!r} is no address; write host:port")
    return host.strip("[]"), int(port)


class Connection(http.client.HTTPConnection):
    """A connection that another thread may cut."""

    def connect(self) -> None:
        """Connect within `CONNECT_S`, then wait for answers as long as the call says."""
        whole, self.timeout = self.timeout, min(self.timeout or CONNECT_S, CONNECT_S)
        super().connect()
        self.timeout = whole
        self.sock.settimeout(whole)

    def cut(self) -> None:
        """End the call that is waiting on this connection, from whatever thread."""
        if self.sock is not None:
            with suppress(OSError):  # it may have been closed by the other side meanwhile
                self.sock.shutdown(socket.SHUT_RDWR)


class Wire:
    """The connections to one server, kept open between calls and shared by all threads."""

    def __init__(self, address: str) -> None:
        self.host, self.port = split_address(address)
        self.address = f"{self.host}:{self.port}"
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._lock = threading.Lock()
        self._closed = False

    def call(
        self,
        phase: str,
        path: str,
        body: Any = None,
        *,
        deadline: float,
        method: str = "POST",
        holds: Callable[[Connection], None] | None = None,
    ) -> dict[str, Any]:
        """The server's answer.

        Parameters
        ----------
        phase : str
            What the caller is doing; stands in front of every error.
        body : Any
            Sent as JSON; nothing when None.
        deadline : float
            Seconds that the server may be silent.
        holds : callable or None
            Gets the connection before the call, to cut it.

        Raises
        ------
        ServerFault
            No connection, no answer in time, a status other than 200, or no JSON.
        """
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + deadline
        for fresh in (False, True):
            connection, used = self._take(fresh)
            if holds is not None:
                holds(connection)
            try:
                status, content = self._exchange(connection, method, path, data, until)
            except STALE as e:
                self._drop(connection)
                if used:
                    continue  # the server has closed a connection that was idle: not a fault
                raise ServerFault(phase, self.address, _gone(e)) from e
            except (OSError, http.client.HTTPException, ValueError) as e:
                self._drop(connection)
                raise ServerFault(phase, self.address, _reason(e, deadline)) from e
            self._give_back(connection)
            return _parse(phase, self.address, status, content)
        raise AssertionError("a fresh connection is not used")

    def cut(self) -> None:
        """End every call in flight and forget the idle connections."""
        with self._lock:
            busy, idle, self._idle = list(self._busy), self._idle, []
        for connection in busy:
            connection.cut()
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Cut, and refuse further calls."""
        self._closed = True
        self.cut()

    def _exchange(
        self, connection: Connection, method: str, path: str, data: bytes | None, until: float
    ) -> tuple[int, bytes]:
        connection.timeout = max(0.001, until - time.monotonic())
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        headers = {} if data is None else {"Content-Type": "application/json"}
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return response.status, response.read()

    def _take(self, fresh: bool) -> tuple[Connection, bool]:
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            used = bool(self._idle) and not fresh
            connection = self._idle.pop() if used else Connection(self.host, self.port)
            self._busy.add(connection)
        return connection, used

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()  # nobody will come back to it

    def _drop(self, connection: Connection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()


def _parse(phase: str, address: str, status: int, content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content) if content.strip() else {}
    except ValueError as e:
        if status == 200:
            raise ServerFault(phase, address, "the answer is not JSON") from e
        answer = {}
    if status != 200:
        raise ServerFault(phase, address, f"HTTP status {status}{_said(answer)}", status)
    if not isinstance(answer, dict):
        raise ServerFault(phase, address, "the answer is no JSON object")
    return answer


def _said(answer: Any) -> str:
    """What the server gave as its reason, one line."""
    error = answer.get("error", answer.get("detail")) if isinstance(answer, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    lines = str(text).strip().splitlines() if text else []
    return f" ({lines[0][:300]})" if lines else ""


def _gone(error: Exception) -> str:
    return f"the server closed the connection ({type(error).__name__})"


def _reason(error: Exception, deadline: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {deadline:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused: nothing listens there"
    if isinstance(error, OSError) and error.strerror:
        return f"no connection ({error.strerror})"
    return f"no answer ({type(error).__name__}: {error})"
