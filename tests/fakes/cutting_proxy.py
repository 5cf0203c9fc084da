"""A TCP proxy in front of a real server that cuts its first event stream in the middle of a message."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class CuttingProxy:
    """Passes every connection through, but ends the first event stream after `cut_after` bytes of it."""

    def __init__(self, target: str, cut_after: int) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._cut_after = cut_after
        self.n_streams = 0
        """Event streams that were asked for."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _handle(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._target) as server:
            while request := client.recv(65536):
                is_stream = b"text/event-stream" in request
                self.n_streams += is_stream
                if is_stream:  # the server's end of the connection is then the end of the stream
                    request = request.replace(b"onnection: keep-alive", b"onnection: close")
                server.sendall(request)
                if is_stream:
                    self._pass_on(server, client, self._cut_after if self.n_streams == 1 else None)
                    return
                client.sendall(_one_answer(server))

    @staticmethod
    def _pass_on(server: socket.socket, client: socket.socket, cut_after: int | None) -> None:
        left = cut_after
        while piece := server.recv(4096 if left is None else min(left, 4096)):
            client.sendall(piece)
            if left is not None:
                left -= len(piece)
                if left <= 0:
                    return


def _one_answer(server: socket.socket) -> bytes:
    """One response with a Content-Length, which all of the API's plain answers have."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += server.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    ]
    while len(body) < int(lengths[0]):
        body += server.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def cutting(target: str, cut_after: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target, cut_after)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    yield proxy
    proxy.close()
    thread.join(timeout=10)
