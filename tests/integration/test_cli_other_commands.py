"""Files, keys, models and versions on the command line, against a running API."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from tests.conftest import free_port
from tests.integration.calling import Cli, claim, cli, end, rl_job  # noqa: F401
from tests.integration.running_api import RunningApi, api  # noqa: F401

import headrace
from headrace.contracts.job import JobStatus

pytestmark = pytest.mark.integration

CHAT = '{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]}\n'


def test_a_file_is_uploaded_shown_downloaded_and_deleted(api: RunningApi, cli: Cli):  # noqa: F811
    Path("train.jsonl").write_text(CHAT)
    [made] = cli("files", "upload", "train.jsonl", "--json").json()
    assert cli("files", "show", made["id"], "--json").json()["n_rows"] == 1
    assert made["sha256"] in cli("files", "show", made["id"]).out
    taken = cli("files", "download", made["id"])
    assert taken.code == 1
    assert "train.jsonl exists already; give another --output" in taken.err
    assert cli("files", "download", made["id"], "--output", "copy.jsonl").code == 0
    assert Path("copy.jsonl").read_text() == CHAT
    assert cli("files", "download", made["id"], "-o", "-").out == CHAT
    assert cli("files", "delete", made["id"]).out == f"{made['id']} deleted\n"
    assert cli("files", "show", made["id"]).code == 1
    assert cli("files", "download", made["id"], "-o", "gone.jsonl").code == 1
    assert sorted(path.name for path in Path().iterdir()) == ["copy.jsonl", "train.jsonl"]


def test_files_are_listed_in_pages(api: RunningApi, cli: Cli):  # noqa: F811
    for n in range(3):
        Path(f"{n}.jsonl").write_text(CHAT * (n + 1))
    made = cli("files", "upload", "0.jsonl", "1.jsonl", "2.jsonl", "--json").json()
    page = cli("files", "list", "--limit", "2", "--json")
    assert [row["filename"] for row in page.json()] == ["2.jsonl", "1.jsonl"]
    assert page.err == f"there are more: --after {made[1]['id']}\n"
    assert "0.jsonl" in cli("files", "list", "--after", made[1]["id"]).out


def test_a_downloaded_name_leads_into_no_other_folder(api: RunningApi, cli: Cli, monkeypatch):  # noqa: F811
    Path("train.jsonl").write_text(CHAT)
    [made] = cli("files", "upload", "train.jsonl", "--json").json()
    from headrace.client import ApiClient

    hostile = lambda self, file_id: {"filename": "../../evil.jsonl"}  # noqa: E731
    monkeypatch.setattr(ApiClient, "get_file", hostile)
    assert cli("files", "download", made["id"]).out == f"{made['id']}  evil.jsonl\n"
    assert Path("evil.jsonl").read_text() == CHAT


def test_a_task_apps_keys_are_listed_by_prefix_and_deleted(api: RunningApi, cli: Cli):  # noqa: F811
    Path("keys.env").write_text(
        "ENVIRONMENT_API_KEY=first-key-0123456789\nENVIRONMENT_API_KEY_ALIASES=second-key-987\n"
    )
    assert cli("keys", "upload-env", "--env-file", "keys.env").out == "uploaded 2 keys\n"
    listed = cli("keys", "list-env", "--json").json()
    assert len(listed) == 2
    table = cli("keys", "list-env").out
    assert "0123456789" not in table
    for row in listed:
        assert cli("keys", "delete-env", row["id"]).out == f"{row['id']} deleted\n"
    assert cli("keys", "list-env").out == "none\n"


def test_a_trained_model_is_listed_and_shown(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    claim(api, job_id)
    end(api, job_id, JobStatus.SUCCEEDED, model_id=f"ft:Qwen/Qwen3-0.6B:{job_id}")
    shown = cli("models", "show", f"ft:Qwen/Qwen3-0.6B:{job_id}", "--json").json()
    assert (shown["job_id"], shown["base_model"]) == (job_id, "Qwen/Qwen3-0.6B")
    assert f"ft:Qwen/Qwen3-0.6B:{job_id}" in cli("models", "list").out
    missing = cli("models", "show", "ft:none")
    assert missing.code == 1
    assert "ft:none" in missing.err


def test_version_names_the_api_that_answers_and_says_why_none_does(api: RunningApi, cli: Cli):  # noqa: F811
    found = cli("version", "--json").json()
    assert found == {
        "headrace": headrace.__version__, "python": platform.python_version(),
        "api": {"url": api.url, "version": headrace.__version__, "error": None},
    }  # fmt: skip
    nobody = cli("version", "--backend", f"http://127.0.0.1:{free_port()}")
    assert nobody.code == 0
    assert "does not answer" in nobody.out


def test_checkpoints_are_listed_under_both_names(api: RunningApi, cli: Cli):  # noqa: F811
    job_id = rl_job(api)
    assert cli("jobs", "checkpoints", job_id).out == cli("checkpoints", "list", job_id).out == "none\n"
