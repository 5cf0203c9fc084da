"""The real gateway process over a fake engine: `python -m tests.fakes.gateway`.

A spec whose engine arguments hold `--broken` gets an engine that ends at once.
"""

from __future__ import annotations

import os
import sys

from headrace.contracts.policy import ServeSpec
from headrace_policy import parsers
from headrace_policy.__main__ import run
from headrace_policy.engine import EngineProcess
from headrace_policy.settings import PolicySettings


def launch_fake(spec: ServeSpec, settings: PolicySettings) -> EngineProcess:
    parsers.require_known(spec.engine_args)
    line = [sys.executable, "-m", "tests.fakes.engine", str(settings.engine_port)]
    if "--broken" in spec.engine_args:
        line = [sys.executable, "-c", "raise SystemExit('no such quantisation')"]
    return EngineProcess.start(line, dict(os.environ), settings.engine_log)


if __name__ == "__main__":
    run(launch_fake)
