"""The API over httpx, for the CLI and the dashboard.

Every method returns the server's JSON as it came. A refusal raises the `HeadraceError` subclass of
its status with the server's sentence, and `details["problems"]` where the server listed several;
a server that does not answer raises `Unavailable` and names its address.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from headrace import errors
from headrace.errors import HeadraceError, Unavailable

Json = dict[str, Any]

_BY_CODE: dict[str, type[HeadraceError]] = {
    kind.code: kind
    for kind in (
        errors.ConfigError, errors.BadRequest, errors.Unauthorized, errors.NotFound, errors.Conflict,
        errors.StaleTimeline, errors.Gone, errors.DataError, errors.Unavailable, errors.JobFailed,
    )
}  # fmt: skip
_BY_STATUS: dict[int, type[HeadraceError]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.ConfigError,
    503: errors.Unavailable,
}


class ApiClient:
    """Calls one Headrace API with one key. Not shared between threads that close it.

    >>> with ApiClient("http://127.0.0.1:8760", "hr_...") as api:  # doctest: +SKIP
    ...     job = api.create_rl_job({"data": {"config": {...}}, "strict": True})
    """

    def __init__(self, base_url: str, api_key: str = "", *, timeout_s: float = 30.0) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1").removesuffix("/api")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(
            base_url=f"{self.base_url}/api/v1",
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=min(5.0, timeout_s)),
            verify=self.base_url.startswith("https"),  # loading certificates is slow, and http needs none
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Jobs

    def create_rl_job(self, payload: Json, idempotency_key: str | None = None) -> Json:
        """Submit the payload of `POST /rl/jobs`; the same key and payload give the same job again."""
        return self._create("/rl/jobs", payload, idempotency_key)

    def create_sft_job(self, payload: Json, idempotency_key: str | None = None) -> Json:
        return self._create("/learning/jobs", payload, idempotency_key)

    def create_eval_job(self, payload: Json, idempotency_key: str | None = None) -> Json:
        return self._create("/eval/jobs", payload, idempotency_key)

    def start_job(self, job_id: str) -> Json:
        """Part of the SFT contract; a job is queued at creation, so this only returns it."""
        return self._send("POST", f"/jobs/{job_id}/start", json={})

    def get_job(self, job_id: str) -> Json:
        return self._send("GET", f"/jobs/{job_id}")

    def list_jobs(
        self,
        *,
        type: str | None = None,
        status: str | None = None,
        pool: str | None = None,
        model: str | None = None,
        tags: dict[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Json]:
        """Newest first. `tags` filters by equality."""
        params: list[tuple[str, Any]] = _given(type=type, status=status, pool=pool, model=model, limit=limit)
        params += [("tag", f"{key}:{value}") for key, value in (tags or {}).items()]
        return self._send("GET", "/jobs", params=params)["jobs"]

    def cancel_job(self, job_id: str) -> Json:
        return self._send("POST", f"/jobs/{job_id}/cancel", json={})

    def events(self, job_id: str, since_seq: int = 0, limit: int = 200) -> list[Json]:
        """Events with `seq > since_seq`, oldest first."""
        params = _given(since_seq=since_seq, limit=limit)
        return self._send("GET", f"/jobs/{job_id}/events", params=params)["events"]

    def follow_events(self, job_id: str, since_seq: int = 0) -> Iterator[Json]:
        """Yield events as they come (server-sent), until the job is terminal.

        Raises Unavailable when the connection breaks: call again with the last `seq`.
        """
        headers = {"Accept": "text/event-stream"}
        path, params = f"/jobs/{job_id}/events", {"since_seq": since_seq}
        try:
            with self._http.stream("GET", path, params=params, headers=headers, timeout=None) as response:
                if response.is_error:
                    response.read()
                    raise _error(response)
                for line in response.iter_lines():
                    if line.startswith("data:"):
                        yield json.loads(line[5:])
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def metrics(
        self, job_id: str, after_step: int = -1, name: str | None = None, limit: int = 5000
    ) -> list[Json]:
        """Points with `step > after_step`, ordered by step and name."""
        params = _given(after_step=after_step, name=name, limit=limit)
        return self._send("GET", f"/jobs/{job_id}/metrics", params=params)["points"]

    def timeline(self, job_id: str) -> list[Json]:
        return self._send("GET", f"/jobs/{job_id}/timeline")["events"]

    def checkpoints(self, job_id: str) -> list[Json]:
        """Newest first."""
        return self._send("GET", f"/jobs/{job_id}/checkpoints")["checkpoints"]

    def job_config(self, job_id: str) -> Json:
        """`{submitted, toml, resolved}`."""
        return self._send("GET", f"/jobs/{job_id}/config")

    def ledger(self, job_id: str) -> Json:
        """`{entries, summary: {planned, trained, not_trained: {reason: n}, is_complete}}`."""
        return self._send("GET", f"/jobs/{job_id}/ledger")

    # Rollouts

    def rollouts(
        self,
        job_id: str,
        *,
        purpose: str | None = None,
        iteration: int | None = None,
        status: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Json:
        """`{rollouts: [...], total}`, ordered by iteration, group and member."""
        params = _given(purpose=purpose, iteration=iteration, status=status, limit=limit, offset=offset)
        return self._send("GET", f"/jobs/{job_id}/rollouts", params=params)

    def rollout(self, rollout_id: str) -> Json:
        """`{rollout, attempts, event_rewards, trajectory}`; `trajectory` is None before it is recorded."""
        return self._send("GET", f"/rollouts/{rollout_id}")

    # Files

    def upload_file(self, path: Path, purpose: str = "fine-tune") -> Json:
        """Upload chat JSONL; a bad line raises DataError, which names it."""
        with path.open("rb") as content:
            files = {"file": (path.name, content, "application/jsonl")}
            return self._send("POST", "/files", data={"purpose": purpose}, files=files, timeout=300.0)

    def get_file(self, file_id: str) -> Json:
        return self._send("GET", f"/files/{file_id}")

    def list_files(self, purpose: str | None = None) -> list[Json]:
        return self._send("GET", "/files", params=_given(purpose=purpose))["files"]

    def delete_file(self, file_id: str) -> Json:
        return self._send("DELETE", f"/files/{file_id}")

    # Models, keys, task apps

    def models(self) -> list[Json]:
        """Model ids that jobs ended with, newest first, then the operator's aliases."""
        return self._send("GET", "/models")["models"]

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

    def verify_task_app(self, task_url: str) -> Json:
        """`{any_ok, candidates_first15, attempts}`: the API calls the task app once per stored key."""
        body = {"endpoint_base_url": task_url}
        return self._send("POST", "/rl/verify_task_app", json=body, timeout=60.0)

    def health(self) -> Json:
        return self._send("GET", "/health")

    def ready(self) -> Json:
        """Raises Unavailable with the reason while a dependency does not answer."""
        return self._send("GET", "/ready")

    def _create(self, path: str, payload: Json, idempotency_key: str | None) -> Json:
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send("POST", path, json=payload, headers=headers)

    def _send(self, method: str, path: str, **request: Any) -> Any:
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise _error(response)
        try:
            return response.json()
        except ValueError as error:
            raise Unavailable(
                f"{self.base_url} answered {method} {path} with something other than JSON"
            ) from error

    def _unreachable(self, error: httpx.HTTPError) -> Unavailable:
        return Unavailable(f"the API at {self.base_url} does not answer: {error or type(error).__name__}")


def _given(**params: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in params.items() if value is not None]


def _error(response: httpx.Response) -> HeadraceError:
    """The server's refusal as the exception that its code names."""
    try:
        body = response.json()
    except ValueError:
        body = {}
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        detail = body.get("detail") if isinstance(body, dict) else None
        error = {"message": detail or f"{response.request.url} answered {response.status_code}"}
    kind = _BY_CODE.get(error.get("code", "")) or _BY_STATUS.get(response.status_code, HeadraceError)
    details = {"problems": error["problems"]} if error.get("problems") else {}
    return kind(str(error["message"]), **details)
