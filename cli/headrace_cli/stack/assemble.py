"""Which processes make the local stack, and what each of them is told through its environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headrace_cli.stack import valkey
from headrace_cli.stack.ports import LOOPBACK, Ports
from headrace_cli.stack.probes import HeartbeatProbe, HttpProbe, Probe
from headrace_cli.stack.secrets import StackSecrets, environment
from headrace_cli.stack.specs import STOP_FIRST, STOP_NEXT, ProcessSpec

_KEPT_BACK = (
    *("HEADRACE_SECRET_KEY", "HEADRACE_WORKER_TOKEN", "HEADRACE_TRAINER_TOKEN"),
    *("HEADRACE_BOOTSTRAP_KEY", "HEADRACE_API_KEY", "SYNTH_API_KEY", "ENVIRONMENT_API_KEY"),
)
"""Variables of our own environment that a child gets only when it needs them."""


@dataclass(frozen=True)
class Plan:
    """What `headrace up` was asked to run."""

    home: Path
    ports: Ports
    secrets: StackSecrets
    environ: Mapping[str, str]
    """The environment that `headrace up` itself was started with."""
    n_workers: int = 1
    with_flower: bool = True
    with_dashboard: bool = True

    @property
    def redis_url(self) -> str:
        return self.environ.get("REDIS_URL") or valkey.url(self.ports.valkey)

    @property
    def embeds_valkey(self) -> bool:
        return not self.environ.get("REDIS_URL")

    @property
    def wanted_ports(self) -> dict[str, int]:
        """Ports that must be free, by the name of their option."""
        wanted = {"api": self.ports.api, "policy": self.ports.policy, "engine": self.ports.engine}
        if self.with_dashboard:
            wanted["dashboard"] = self.ports.dashboard
        if self.with_flower:
            wanted["flower"] = self.ports.flower
        if self.embeds_valkey:
            wanted["valkey"] = self.ports.valkey
        return wanted

    @property
    def addresses(self) -> dict[str, str]:
        """Where each door of the stack is; an outside Redis is shown without its password."""
        found = {"api": _http(self.ports.api), "policy": _http(self.ports.policy)}
        if self.with_dashboard:
            found["dashboard"] = _http(self.ports.dashboard)
        if self.with_flower:
            found["flower"] = _http(self.ports.flower)
        return {**found, "redis": without_password(self.redis_url), "home": str(self.home)}


def processes(plan: Plan) -> list[ProcessSpec]:
    """The stack's processes, in the order in which they are shown."""
    specs = [_api(plan), _recorder(plan), _policy(plan), *_workers(plan), _trainer(plan), _evaluator(plan)]
    if plan.with_dashboard:
        specs.append(_dashboard(plan))
    if plan.with_flower:
        specs.append(_flower(plan))
    if plan.embeds_valkey:
        specs.insert(0, valkey.spec(plan.home, plan.ports.valkey, _base(plan)))
    return specs


def without_password(url: str) -> str:
    """`redis://:secret@host:6379/0` as `redis://***@host:6379/0`."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]).geturl()


def _api(plan: Plan) -> ProcessSpec:
    return _spec(
        plan, "api", ("-m", "headrace_api"), HttpProbe(f"{_http(plan.ports.api)}/ready"),
        url=_http(plan.ports.api),
        stop_stage=STOP_NEXT,
        env={
            "HEADRACE_API_HOST": LOOPBACK,
            "HEADRACE_API_PORT": str(plan.ports.api),
            "HEADRACE_BOOTSTRAP_KEY": plan.secrets.api_key,
            **environment(plan.secrets, "secret_key", "worker_token"),
        },
    )  # fmt: skip


def _recorder(plan: Plan) -> ProcessSpec:
    return _spec(
        plan, "recorder", ("-m", "headrace_api.recorder"), HeartbeatProbe(plan.redis_url, "recorder"),
        after=("api",),  # which migrates the database
        stop_stage=STOP_NEXT,
    )  # fmt: skip


def _policy(plan: Plan) -> ProcessSpec:
    return _spec(
        plan, "policy", ("-m", "headrace_policy"), HttpProbe(f"{_http(plan.ports.policy)}/ready"),
        url=_http(plan.ports.policy),
        stop_stage=STOP_NEXT,
        env={
            "HEADRACE_POLICY_HOST": LOOPBACK,
            "HEADRACE_POLICY_PORT": str(plan.ports.policy),
            "HEADRACE_ENGINE_PORT": str(plan.ports.engine),
            **environment(plan.secrets, "worker_token", "trainer_token"),
            **_one_thread(plan),
        },
    )  # fmt: skip


def _workers(plan: Plan) -> list[ProcessSpec]:
    names = ["worker", *(f"worker-{number}" for number in range(2, plan.n_workers + 1))]
    return [
        _spec(
            plan, name, ("-m", "headrace_rollout_worker"), HeartbeatProbe(plan.redis_url, name),
            env={
                "HEADRACE_WORKER_CONCURRENCY": plan.environ.get("HEADRACE_WORKER_CONCURRENCY", "64"),
                **environment(plan.secrets, "secret_key", "worker_token"),
            },
        )
        for name in names
    ]  # fmt: skip


def _trainer(plan: Plan) -> ProcessSpec:
    return _spec(
        plan, "trainer", ("-m", "headrace_trainer"), HeartbeatProbe(plan.redis_url, "trainer"),
        after=("api",),
        env={**environment(plan.secrets, "secret_key", "trainer_token"), **_one_thread(plan)},
    )  # fmt: skip


def _evaluator(plan: Plan) -> ProcessSpec:
    return _spec(
        plan, "evaluator", ("-m", "headrace_trainer.evaluator"), HeartbeatProbe(plan.redis_url, "evaluator"),
        after=("api",),
        env=environment(plan.secrets, "secret_key", "trainer_token"),
    )  # fmt: skip


def _dashboard(plan: Plan) -> ProcessSpec:
    return _spec(
        plan, "dashboard", ("-m", "headrace_dashboard"), HttpProbe(f"{_http(plan.ports.dashboard)}/ready"),
        url=_http(plan.ports.dashboard),
        env={
            "HEADRACE_DASHBOARD_HOST": LOOPBACK,
            "HEADRACE_DASHBOARD_PORT": str(plan.ports.dashboard),
            "HEADRACE_API_KEY": plan.secrets.api_key,
        },
    )  # fmt: skip


def _flower(plan: Plan) -> ProcessSpec:
    return _spec(
        plan, "flower",
        ("-m", "celery", "flower", f"--address={LOOPBACK}", f"--port={plan.ports.flower}"),
        HttpProbe(f"{_http(plan.ports.flower)}/healthcheck"),
        url=_http(plan.ports.flower),
        env={"CELERY_BROKER_URL": plan.redis_url},  # not an argument: `ps` would show its password
    )  # fmt: skip


def _spec(
    plan: Plan,
    name: str,
    arguments: tuple[str, ...],
    probe: Probe,
    *,
    url: str | None = None,
    after: tuple[str, ...] = (),
    stop_stage: int = STOP_FIRST,
    env: Mapping[str, str] | None = None,
) -> ProcessSpec:
    needs = ("valkey", *after) if plan.embeds_valkey else after
    return ProcessSpec(
        name=name,
        argv=(sys.executable, *arguments),
        env={**_base(plan), "HEADRACE_PROCESS": name, **(env or {})},
        probe=probe,
        url=url,
        after=needs,
        stop_stage=stop_stage,
    )


def _base(plan: Plan) -> dict[str, str]:
    """What every process is told: addresses and the home folder, over our own environment."""
    kept = {name: value for name, value in plan.environ.items() if name not in _KEPT_BACK}
    return {
        **kept,
        "HEADRACE_HOME": str(plan.home),
        "REDIS_URL": plan.redis_url,
        "HEADRACE_API_URL": _http(plan.ports.api),
        "HEADRACE_POLICY_URL": _http(plan.ports.policy),
        "HEADRACE_DASHBOARD_URL": _http(plan.ports.dashboard) if plan.with_dashboard else "",
        "HEADRACE_FLOWER_URL": _http(plan.ports.flower) if plan.with_flower else "",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",  # a module in the current folder must not shadow one of ours
    }


def _one_thread(plan: Plan) -> dict[str, str]:
    """On a CPU two processes with two threads each collapse: one core each, unless the user says otherwise."""
    return {"OMP_NUM_THREADS": plan.environ.get("OMP_NUM_THREADS", "1")}


def _http(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"
