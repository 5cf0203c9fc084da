from __future__ import annotations

import base64
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from tests.conftest import free_port
from tests.integration.running_api import ALICE, RunningApi, api  # noqa: F401  (a fixture)

from headrace.client import ApiClient
from headrace.errors import BadRequest, Conflict, NotFound, Unauthorized
from headrace.queue.secrets import unseal
from headrace.store import keys

pytestmark = pytest.mark.integration

LINE = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'


def test_a_dataset_is_kept_as_it_came(api: RunningApi, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "train.jsonl"
    path.write_bytes(LINE * 3)
    file = api.alice.upload_file(path)
    assert (file["filename"], file["status"], file["n_rows"], file["bytes"]) == (
        "train.jsonl", "ready", 3, len(LINE) * 3
    )  # fmt: skip
    assert api.bob.get_file(file["id"]) == file
    assert api.alice.list_files() == [file]
    with httpx.Client(base_url=api.url, headers={"Authorization": f"Bearer {ALICE}"}) as http:
        assert http.get(f"/files/{file['id']}/content").content == LINE * 3
        assert http.get(f"/api/learning/files/{file['id']}").json() == file
        assert http.get("/files").json()["data"] == [file]
        old = http.post(
            "/api/learning/files", files={"file": ("v.jsonl", LINE)}, data={"purpose": "fine-tune"}
        )
        assert old.json()["id"].startswith("file_")
    assert api.charlie.list_files() == []
    for call in (api.charlie.get_file, api.charlie.delete_file):
        with pytest.raises(NotFound):
            call(file["id"])
    api.alice.delete_file(file["id"])
    with pytest.raises(NotFound):
        api.alice.get_file(file["id"])
    assert not (api.settings.artifacts / "local/files" / f"{file['id']}.jsonl").exists()


def test_jobs_of_a_file_are_listed(api: RunningApi, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "train.jsonl"
    path.write_bytes(LINE * 10)
    file_id = api.alice.upload_file(path)["id"]
    config = {"job": {"model": api.model}, "hyperparameters": {"batch_size": 4, "n_epochs": 2}}
    payload = {"config": config, "training_file_id": file_id, "validation_file_id": file_id, "strict": True}
    job = api.alice.create_sft_job(payload)
    assert (job["type"], job["iterations"]) == ("sft", 6)
    assert job["data"] == {"training_file_id": file_id, "validation_file_id": file_id}
    headers = {"Authorization": f"Bearer {ALICE}"}
    listed = httpx.get(f"{api.url}/files/{file_id}/jobs", headers=headers).json()["jobs"]
    assert [row["job_id"] for row in listed] == [job["job_id"]]


def test_a_key_is_shown_once_and_works_until_it_is_revoked(api: RunningApi) -> None:  # noqa: F811
    made = api.alice.create_key("laptop")
    assert "key" not in api.alice.list_keys()[-1]
    with ApiClient(api.url, made["key"]) as laptop:
        assert laptop.list_jobs() == []
        with pytest.raises(NotFound):
            api.charlie.revoke_key(made["key_id"])
        assert api.alice.revoke_key(made["key_id"])["revoked_at"] is not None
        with pytest.raises(Unauthorized, match=made["prefix"]):
            laptop.list_jobs()
    (last,) = api.charlie.list_keys()
    with pytest.raises(Conflict, match="last key"):
        api.charlie.revoke_key(last["key_id"])


def test_an_environment_key_travels_sealed_and_rests_encrypted(api: RunningApi) -> None:  # noqa: F811
    secret = "a-very-secret-environment-key"
    headers = {"Authorization": f"Bearer {ALICE}"}
    verify = f"{api.url}/api/v1/env-keys/verify"
    assert httpx.get(verify, headers=headers).json() == {"present": False}
    stored = api.alice.upload_environment_key(secret)
    assert api.alice.upload_environment_key(secret, "renamed")["id"] == stored["id"], "twice is once"
    assert secret not in str(stored)
    assert httpx.get(verify, headers=headers).json() == {"present": True}
    with api.store.read() as session:
        (row,) = keys.environment_keys(session, "local")
        assert keys.environment_keys(session, "charlie") == []
    assert unseal(api.settings.secret_key, row.ciphertext) == [secret]
    database = b"".join(path.read_bytes() for path in api.settings.home.glob("headrace.db*"))
    assert secret.encode() not in database
    httpx.delete(f"{api.url}/env-keys/{stored['id']}", headers=headers).raise_for_status()
    assert httpx.get(verify, headers=headers).json() == {"present": False}


def test_an_upload_that_was_sealed_for_another_key_is_refused(api: RunningApi) -> None:  # noqa: F811
    headers = {"Authorization": f"Bearer {ALICE}"}
    for text in ("not base64!", base64.b64encode(b"x" * 80).decode()):
        answer = httpx.post(f"{api.url}/env-keys", json={"ciphertext_b64": text}, headers=headers)
        assert answer.status_code == 400
        assert "public key" in answer.json()["detail"]


def test_the_public_key_is_the_same_after_a_restart(api: RunningApi) -> None:  # noqa: F811
    from tests.integration.running_api import serving

    path, headers = "/api/v1/crypto/public-key", {"Authorization": f"Bearer {ALICE}"}
    first = httpx.get(api.url + path, headers=headers).json()
    assert first["alg"] == "libsodium.sealedbox.v1"
    assert len(base64.b64decode(first["public_key"])) == 32
    with serving(api.settings) as url:
        assert httpx.get(url + path, headers=headers).json() == first


class TaskApp(BaseHTTPRequestHandler):
    """Opens `/health` to everyone and `/task_info` to the key `right`, as some task apps do."""

    def do_GET(self) -> None:
        if self.path == "/task_info" and self.headers.get("X-API-Key") != "open-sesame":
            self._answer(400, b'{"detail": "unauthorised"}')
        else:
            self._answer(200, b"[]" if self.path.startswith("/odd") else b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_task_app_is_verified_with_each_stored_key(api: RunningApi) -> None:  # noqa: F811
    server = ThreadingHTTPServer(("127.0.0.1", 0), TaskApp)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    none = api.alice.verify_task_app(url)
    assert (none["any_ok"], none["candidates_first15"], none["attempts"][0]["status"]) == (False, 0, 400)
    api.alice.upload_environment_key("wrong")
    assert not api.alice.verify_task_app(url)["any_ok"]
    api.alice.upload_environment_key("open-sesame")
    verified = api.alice.verify_task_app(url)
    assert (verified["any_ok"], verified["candidates_first15"]) == (True, 2)
    assert sorted(attempt["ok"] for attempt in verified["attempts"]) == [False, True]
    assert "open-sesame" not in str(verified)
    server.shutdown()
    server.server_close()


def test_a_task_app_that_is_down_is_no_error_of_the_api(api: RunningApi) -> None:  # noqa: F811
    answer = api.alice.verify_task_app(f"http://127.0.0.1:{free_port()}")
    assert not answer["any_ok"]
    assert "does not answer" in answer["attempts"][0]["error"]
    with pytest.raises(BadRequest, match="not an http"):
        api.alice.verify_task_app("file:///etc/passwd")
