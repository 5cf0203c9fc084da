"""models.toml over the API, and in what trains: the engine's arguments, and the template in checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fakes.tiny_model import make_tiny_model
from tests.fakes.trainer import TrainerWorld
from tests.integration.running_api import RunningApi, api  # noqa: F401  (a fixture)

from headrace.artifacts.templated import with_template
from headrace.contracts.policy import PolicyVersion
from headrace.queue import names
from headrace.queue.slots import SlotClaim
from headrace_policy.versions import can_swap_in_place
from headrace_trainer.policy_link import PolicyLink

pytestmark = pytest.mark.integration
TEMPLATE = "{% for message in messages %}[{{ message['content'] }}]{% endfor %}"


def register(api: RunningApi, **more: str) -> None:  # noqa: F811
    lines = [f'{key} = "{value}"' for key, value in more.items()]
    text = f'[models.m]\npath = "{api.model}"\n[models.exp]\npath = "{api.model}"\nexperimental = true\n'
    api.settings.models_toml.write_text("\n".join([text, *lines]))


def submit(api: RunningApi, model: str, **top: object) -> tuple[int, dict]:  # noqa: F811
    import httpx

    payload = api.rl_payload() | top
    payload["data"]["config"]["model"]["base"] = model
    headers = {"Authorization": "Bearer hr_alice"}
    reply = httpx.post(f"{api.url}/rl/jobs", json=payload, headers=headers)
    return reply.status_code, reply.json()


def test_an_experimental_model_is_refused_without_the_flag_and_taken_with_it(api: RunningApi) -> None:  # noqa: F811
    register(api)
    status, body = submit(api, "exp")
    assert status == 422
    assert "model 'exp' is experimental on this server" in body["error"]["message"]
    assert submit(api, "exp", allow_experimental=True)[0] == 201
    assert submit(api, "m")[0] == 201


def test_the_list_of_models_shows_what_the_operator_wrote(api: RunningApi) -> None:  # noqa: F811
    register(api, tool_parser="hermes", reasoning_parser="qwen3")
    import httpx

    listed = httpx.get(f"{api.url}/models", headers={"Authorization": "Bearer hr_alice"}).json()["models"]
    by_id = {model["id"]: model for model in listed}
    assert by_id["exp"]["experimental"] is True
    assert (by_id["exp"]["tool_parser"], by_id["exp"]["reasoning_parser"]) == ("hermes", "qwen3")
    assert (by_id["m"]["experimental"], by_id["m"]["tool_parser"]) == (False, None)
    assert by_id["m"]["path"] == api.model


def test_other_parsers_need_another_engine(tmp_path: Path, store, valkey_url: str) -> None:
    world = TrainerWorld(tmp_path, store, valkey_url)
    slot = SlotClaim(world.redis, "p", 0, "job_1")
    assert slot.try_acquire()
    link = PolicyLink(world.context, slot, "job_1", "serve")
    model, version = make_tiny_model(tmp_path / "tiny"), PolicyVersion(timeline=1, n=0)
    plain = link.desire(model, version, None)
    parsed = link.desire(model, version, None, ("--tool-call-parser", "llama3_json"))
    assert parsed.engine_args == (*world.context.topology.engine_args, "--tool-call-parser", "llama3_json")
    assert json.loads(world.redis.get(names.slot_desired("p", 0))) == parsed.model_dump(mode="json")  # type: ignore[arg-type]
    assert not can_swap_in_place(plain, parsed)
    link.close()
    slot.release()


def test_a_template_of_the_operators_renders_and_is_in_the_checkpoint(tmp_path: Path) -> None:
    from headrace.render import Renderer
    from headrace_trainer.model import load_policy, save_policy

    (tmp_path / "own.jinja").write_text(TEMPLATE)
    view = with_template(make_tiny_model(tmp_path / "tiny"), tmp_path / "own.jinja", tmp_path / "views")
    save_policy(load_policy(view), view, tmp_path / "checkpoint")
    for folder in (view, tmp_path / "checkpoint"):
        assert Renderer.load(folder).render_text([{"role": "user", "content": "hi"}]) == "[hi]"
    assert not any(path.is_symlink() for path in (tmp_path / "checkpoint").iterdir())
