from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.settings import Settings
from headrace.store.models import resolve_model
from headrace.store.session import Store
from headrace.store.tables import Checkpoint, Job


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return Settings(home=tmp_path / "home")  # pyright: ignore[reportCallIssue]


def model_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def add_job(store: Store, settings: Settings, job_id: str, model: str, org_id: str = "local") -> None:
    """A finished job with two kept checkpoints and a newer one that is not kept."""
    with store.write() as session:
        session.add(
            Job(
                job_id=job_id, org_id=org_id, type="rl", status="succeeded", pool="local-cpu", model=model,
                body_sha256="", model_id=f"ft:Qwen/Qwen3-0.6B:{job_id}",
            )
        )  # fmt: skip
        for iteration, is_kept in ((1, True), (2, True), (3, False)):
            path = f"{org_id}/{job_id}/checkpoints/i{iteration}"
            model_folder(settings.artifacts / path)
            session.add(
                Checkpoint(
                    checkpoint_id=f"ckpt_{job_id}_{iteration}", org_id=org_id, job_id=job_id, timeline=1,
                    version=iteration, iteration=iteration, step=iteration, path=path, is_kept=is_kept,
                )
            )  # fmt: skip


def test_a_local_folder_is_found_and_named_for_itself(store: Store, settings: Settings, tmp_path) -> None:
    folder = model_folder(tmp_path / "tiny")
    with store.read() as session:
        found = resolve_model(session, "local", str(folder), settings)
    assert (found.path, found.base_name) == (folder, "tiny")


def test_an_alias_wins_over_the_hub_cache(store: Store, settings: Settings, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "tiny")
    settings.home.mkdir()
    settings.models_toml.write_text(f'[models."Qwen/Qwen3-0.6B"]\npath = "{folder}"\n')
    with store.read() as session:
        found = resolve_model(session, "local", "Qwen/Qwen3-0.6B", settings)
    assert (found.path, found.base_name, found.is_alias) == (folder, "Qwen/Qwen3-0.6B", True)


def test_a_hub_id_is_found_in_the_local_cache(store: Store, settings: Settings, tmp_path: Path) -> None:
    repository = tmp_path / "hf" / "hub" / "models--Qwen--Qwen3-0.6B"
    snapshot = model_folder(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc\n")
    with store.read() as session:
        assert resolve_model(session, "local", "Qwen/Qwen3-0.6B", settings).path == snapshot


def test_a_model_id_is_its_jobs_newest_kept_checkpoint(store: Store, settings: Settings) -> None:
    add_job(store, settings, "job_1", "Qwen/Qwen3-0.6B")
    with store.read() as session:
        found = resolve_model(session, "local", "ft:Qwen/Qwen3-0.6B:job_1", settings)
    assert found.path == settings.artifacts / "local/job_1/checkpoints/i2"
    assert found.base_name == "Qwen/Qwen3-0.6B"


def test_what_a_fine_tuned_model_starts_is_named_for_the_first_base(store: Store, settings: Settings) -> None:
    add_job(store, settings, "job_2", "ft:Qwen/Qwen3-0.6B:job_1")
    with store.read() as session:
        by_id = resolve_model(session, "local", "checkpoint:ckpt_job_2_1", settings)
        by_folder = resolve_model(session, "local", str(by_id.path), settings)
    assert by_id.base_name == by_folder.base_name == "Qwen/Qwen3-0.6B"


@pytest.mark.parametrize("name", ["ft:Qwen/Qwen3-0.6B:job_3", "checkpoint:ckpt_job_3_1", "{folder}"])
def test_another_organisations_models_do_not_exist(store: Store, settings: Settings, name: str) -> None:
    add_job(store, settings, "job_3", "ft:Qwen/Qwen3-0.6B:job_0", org_id="charlie")
    name = name.format(folder=settings.artifacts / "charlie/job_3/checkpoints/i1")
    with store.read() as session:
        assert resolve_model(session, "charlie", name, settings).base_name == "Qwen/Qwen3-0.6B"
        with pytest.raises(ConfigError, match="does not exist"):
            resolve_model(session, "local", name, settings)


def test_a_missing_model_says_where_it_was_looked_for(store: Store, settings: Settings, tmp_path) -> None:
    with store.read() as session, pytest.raises(ConfigError) as refusal:
        resolve_model(session, "local", "nowhere/model", settings)
    for place in ("nowhere/model", "config.json", "models.toml", str(tmp_path / "hf" / "hub")):
        assert place in str(refusal.value)


def test_an_alias_to_nothing_names_the_operators_file(store: Store, settings: Settings) -> None:
    settings.home.mkdir()
    settings.models_toml.write_text('[models.tiny]\npath = "gone"\n')
    with store.read() as session, pytest.raises(ConfigError, match=r"models\.toml maps it to 'gone'"):
        resolve_model(session, "local", "tiny", settings)
