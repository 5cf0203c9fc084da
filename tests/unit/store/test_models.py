from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.artifacts.model_folder import architecture_hash
from headrace.errors import ConfigError
from headrace.settings import Settings
from headrace.store.models import aliases, resolve_model
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


def write_table(settings: Settings, text: str) -> None:
    settings.home.mkdir(exist_ok=True)
    settings.models_toml.write_text(text)


def tiny(settings: Settings, template: str = "theirs") -> Path:
    """A whole model folder called models/tiny, with a template in its tokenizer's config."""
    folder = model_folder(settings.home / "models/tiny")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "x"}))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/tool_use.jinja").write_text("theirs, with tools")
    return folder


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[models.m]\n", '[models."m"] needs a key `path`'),
        ("[models]\nm = 'x'\n", '[models."m"] must be a table'),
        ("models = 3\n", "write one table per model"),
        ("[model.m]\npath = 'x'\n", "[model] is not a table of it"),
        ("[models.m]\npath = 'x'\ntool_parsers = 'hermes'\n", "did you mean `tool_parser`?"),
        ("[models.m]\npath = 'x'\nquantum = 1\n", "unknown key `quantum`; known keys: path, tool_parser"),
        ("[models.m]\npath = 'x'\ntool_parser = true\n", "tool_parser = True must be the name"),
        (
            "[models.m]\npath = 'x'\nreasoning_parser = '--evil'\n",
            "reasoning_parser = '--evil' must be the name",
        ),
        ("[models.m]\npath = 'x'\nexperimental = 'yes'\n", "experimental = 'yes' must be true or false"),
        ("[models.m]\npath = 'x'\nchat_template = ''\n", "chat_template = '' must be the path"),
        (
            "[models.m]\npath = 'x'\nchat_template = 'no.jinja'\n",
            "chat_template = 'no.jinja': there is no file",
        ),
        ("[models.'ft:a:b']\npath = 'x'\n", "names with `ft:`"),
        ("[models.m\n", "is not valid TOML"),
    ],
)
def test_a_faulty_table_is_refused_with_a_sentence(settings: Settings, text: str, sentence: str) -> None:
    write_table(settings, text)
    with pytest.raises(ConfigError) as refusal:
        aliases(settings)
    assert sentence in refusal.value.message
    assert str(settings.models_toml) in refusal.value.message


def test_every_problem_of_the_table_is_told_at_once(settings: Settings) -> None:
    write_table(settings, "[models.a]\nx = 1\n[models.b]\npath = 'x'\nexperimental = 0\n")
    with pytest.raises(ConfigError) as refusal:
        aliases(settings)
    assert len(refusal.value.details["problems"]) == 3  # type: ignore[arg-type]


def test_parsers_become_arguments_of_the_engine(store: Store, settings: Settings) -> None:
    tiny(settings)
    write_table(
        settings,
        "[models.m]\npath = 'models/tiny'\ntool_parser = 'llama3_json'\nreasoning_parser = 'qwen3'\n",
    )
    with store.read() as session:
        found = resolve_model(session, "local", "m", settings)
    assert found.engine_args == ("--tool-call-parser", "llama3_json", "--reasoning-parser", "qwen3")


@pytest.mark.parametrize("name", ["ft:Qwen/Qwen3-0.6B:job_1", "checkpoint:ckpt_job_1_1", "{folder}"])
def test_what_was_trained_has_the_parsers_of_its_base(store: Store, settings: Settings, name: str) -> None:
    add_job(store, settings, "job_1", "Qwen/Qwen3-0.6B")
    tiny(settings)
    write_table(settings, "[models.'Qwen/Qwen3-0.6B']\npath = 'models/tiny'\ntool_parser = 'qwen3_coder'\n")
    name = name.format(folder=settings.artifacts / "local/job_1/checkpoints/i1")
    with store.read() as session:
        found = resolve_model(session, "local", name, settings)
    assert found.engine_args == ("--tool-call-parser", "qwen3_coder")
    assert "checkpoints" in str(found.path), "its own folder, with the template it was trained with"


def test_a_folder_that_is_only_called_like_a_name_has_nothing_of_it(store: Store, settings: Settings) -> None:
    folder = tiny(settings)
    write_table(settings, f"[models.tiny]\npath = '{folder}'\ntool_parser = 'hermes'\n")
    with store.read() as session:
        assert resolve_model(session, "local", str(folder), settings).engine_args == ()


def test_an_experimental_model_has_to_be_allowed(store: Store, settings: Settings) -> None:
    add_job(store, settings, "job_1", "exp")
    tiny(settings)
    write_table(settings, "[models.exp]\npath = 'models/tiny'\nexperimental = true\n")
    with store.read() as session:
        with pytest.raises(ConfigError, match=r"'exp' is experimental .* `allow_experimental: true`"):
            resolve_model(session, "local", "exp", settings, allow_experimental=False)
        assert resolve_model(session, "local", "exp", settings, allow_experimental=True).is_alias
        trained = resolve_model(
            session, "local", "checkpoint:ckpt_job_1_1", settings, allow_experimental=False
        )
    assert trained.base_name == "exp"


def test_a_chat_template_stands_in_for_all_of_the_folders_own(store: Store, settings: Settings) -> None:
    folder = tiny(settings)
    (settings.home / "own.jinja").write_text("ours")
    write_table(settings, "[models.m]\npath = 'models/tiny'\nchat_template = 'own.jinja'\n")
    with store.read() as session:
        first = resolve_model(session, "local", "m", settings)
        again = resolve_model(session, "local", "m", settings)
    assert first.path == again.path != folder
    assert (first.path / "chat_template.jinja").read_text() == "ours"
    assert "chat_template" not in json.loads((first.path / "tokenizer_config.json").read_text())
    assert not (first.path / "additional_chat_templates").exists()
    assert (first.path / "tokenizer.json").resolve() == folder / "tokenizer.json"
    assert architecture_hash(first.path) != architecture_hash(folder), "the engine is started anew"


def test_an_edited_template_makes_another_folder_and_leaves_the_first(
    store: Store, settings: Settings
) -> None:
    tiny(settings)
    template = settings.home / "own.jinja"
    template.write_text("ours")
    write_table(settings, "[models.m]\npath = 'models/tiny'\nchat_template = 'own.jinja'\n")
    with store.read() as session:
        first = resolve_model(session, "local", "m", settings).path
        template.write_text("ours, changed")
        second = resolve_model(session, "local", "m", settings).path
    assert (first / "chat_template.jinja").read_text() == "ours"
    assert (second / "chat_template.jinja").read_text() == "ours, changed"
