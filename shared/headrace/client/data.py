"""Routes of files, models, keys, pools, task apps and inference."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote

from headrace.client.transport import Json, Transport, given

UPLOAD_S = 300.0
CHAT_S = 300.0
"""An answer may wait for the engine to start."""


class _Watched:
    """A file that tells how much of it was read."""

    def __init__(self, file: IO[bytes], on_read: Callable[[int], object]) -> None:
        self._file, self._on_read = file, on_read

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._on_read(len(piece))
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class DataRoutes(Transport):
    """Every method returns the server's JSON as it came, but for those that yield bytes."""

    def upload_file(
        self, path: Path, purpose: str = "fine-tune", *, on_read: Callable[[int], object] | None = None
    ) -> Json:
        """Upload chat JSONL, read as it is sent; a bad line raises DataError, which names it.

        `on_read` is told the size of each piece that was read.
        """
        with path.open("rb") as file:
            content = cast(IO[bytes], _Watched(file, on_read)) if on_read else file
            files = {"file": (path.name, content, "application/jsonl")}
            return self._send("POST", "/files", data={"purpose": purpose}, files=files, timeout=UPLOAD_S)

    def get_file(self, file_id: str) -> Json:
        return self._send("GET", f"/files/{file_id}")

    def download_file(self, file_id: str) -> Iterator[bytes]:
        """The bytes of a file, piece by piece."""
        with self._streaming("GET", f"/files/{file_id}/content") as response:
            yield from response.iter_bytes()

    def list_files(
        self, purpose: str | None = None, after: str | None = None, limit: int | None = None
    ) -> list[Json]:
        """Newest first."""
        return self.files_page(purpose=purpose, after=after, limit=limit)["files"]

    def files_page(
        self, *, purpose: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Json:
        """`{files: [...], has_more}`, newest first; `after` is the id of the last file seen."""
        return self._send("GET", "/files", params=given(purpose=purpose, after=after, limit=limit))

    def delete_file(self, file_id: str) -> Json:
        return self._send("DELETE", f"/files/{file_id}")

    # Models, pools, task apps

    def models(self) -> list[Json]:
        """Model ids that jobs ended with, newest first, then the operator's aliases."""
        return self._send("GET", "/models")["models"]

    def get_model(self, model_id: str) -> Json:
        return self._send("GET", f"/models/{quote(model_id, safe='/:')}")

    def pools(self) -> list[Json]:
        """`{name, description, default_topology, topologies, max_rollouts_per_iteration, max_deadline_s}`."""
        return self._send("GET", "/pools")["pools"]

    def verify_task_app(self, task_url: str, policy_url: str | None = None) -> Json:
        """`{any_ok, candidates_first15, attempts, task_info, policy_callback}`: the API calls the task app once
        per stored key, and has it call back to the policy where it can."""
        body = dict(given(endpoint_base_url=task_url, policy_url=policy_url))
        return self._send("POST", "/rl/verify_task_app", json=body, timeout=60.0)

    def chat_completions(self, body: Json) -> Json:
        """`POST /inference/v1/chat/completions`, in the shape that OpenAI's clients know."""
        return self._send("POST", "/inference/v1/chat/completions", json=body, timeout=CHAT_S)

    # Keys

    def create_key(self, name: str) -> Json:
        """`{key_id, name, prefix, key}`; `key` is shown this once."""
        return self._send("POST", "/keys", json={"name": name})

    def list_keys(self) -> list[Json]:
        return self._send("GET", "/keys")["keys"]

    def revoke_key(self, key_id: str) -> Json:
        return self._send("DELETE", f"/keys/{key_id}")

    def upload_environment_key(self, key: str, name: str = "ENVIRONMENT_API_KEY") -> Json:
        """Store a task app's key, encrypted for the server before it leaves this process."""
        from nacl.public import PublicKey, SealedBox  # only who uploads keys needs libsodium

        public_key = self._send("GET", "/crypto/public-key")["public_key"]
        sealed = SealedBox(PublicKey(base64.b64decode(public_key))).encrypt(key.encode())
        body = {"name": name, "ciphertext_b64": base64.b64encode(sealed).decode()}
        return self._send("POST", "/env-keys", json=body)

    def list_environment_keys(self) -> list[Json]:
        """`{id, name, prefix, updated_at}` of each; the keys themselves never come back."""
        return self._send("GET", "/env-keys")["keys"]

    def delete_environment_key(self, key_id: str) -> Json:
        return self._send("DELETE", f"/env-keys/{key_id}")

    # Health

    def health(self) -> Json:
        """`{status, version}`; needs no key."""
        return self._send("GET", "/health")

    def ready(self) -> Json:
        """Raises Unavailable with the reason while a dependency does not answer."""
        return self._send("GET", "/ready")
