"""The API's description is committed: a change to a route is a visible diff.

`HEADRACE_WRITE_GOLDEN=1 pytest tests/contract` writes it anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from headrace_api.app import create_app
from headrace_api.settings import ApiSettings

OPENAPI = Path(__file__).parent / "openapi.json"


def test_the_committed_description_is_that_of_the_api(tmp_path: Path) -> None:
    described = create_app(ApiSettings.model_validate({"HEADRACE_HOME": tmp_path})).openapi()
    described["info"]["version"] = "any"
    if os.environ.get("HEADRACE_WRITE_GOLDEN"):
        OPENAPI.write_text(json.dumps(described, indent=1, sort_keys=True) + "\n")
    assert json.loads(json.dumps(described)) == json.loads(OPENAPI.read_text())
