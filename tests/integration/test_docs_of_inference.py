"""The examples of "Ask a trained model" are run, against a real API and gateway over the fake engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.inference_world import TRAINED, World, running_world
from tests.integration.running_api import ALICE

pytestmark = pytest.mark.integration
PART = (Path(__file__).parents[2] / "docs/run.md").read_text().partition("## Ask a trained model")[2]
MODEL = "ft:Qwen/Qwen3-0.6B:job_0123456789abcdef"


def example(language: str) -> str:
    """The part's one block of a language, with a model that exists here."""
    [body] = re.findall(rf"^```{language}\n(.*?)^```", PART, re.MULTILINE | re.DOTALL)
    assert MODEL in body
    return body.replace(MODEL, TRAINED)


@pytest.fixture(scope="module")
def world(_valkey_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("home"), _valkey_server) as world, world.owner():
        yield world


@pytest.fixture
def variables(world: World) -> dict[str, str]:
    return {"HEADRACE_API_URL": str(world.http.base_url).rstrip("/"), "HEADRACE_API_KEY": ALICE}


def test_the_curl_example_gets_an_answer(variables: dict[str, str]):
    done = subprocess.run(
        ["bash", "-c", example("bash")], env={**os.environ, **variables}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "Hi"


def test_the_example_with_openais_package_gets_an_answer(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("openai")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    exec(compile(example("python"), "docs", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == "Hi 3"
