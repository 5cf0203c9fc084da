"""Addresses, folders and secrets of a process, from the environment (never from a job's config).

`headrace up` sets all of them for its children. A field's docstring is its documentation.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings shared by the services; each field is read from the variable of its alias."""

    model_config = SettingsConfigDict(
        populate_by_name=True, extra="ignore", use_attribute_docstrings=True, frozen=True
    )

    home: Path = Field(default=Path.home() / ".headrace", alias="HEADRACE_HOME")
    """Folder of everything that one machine keeps: artifacts, database, embedded Valkey, logs, keys."""
    redis_url: str = Field(default="redis://127.0.0.1:8765/0", alias="REDIS_URL")
    """Redis or Valkey with an append-only file."""
    database_url: str = Field(default="", alias="DATABASE_URL")
    """SQLAlchemy URL; empty means SQLite in the home folder (all processes on one host)."""
    api_url: str = Field(default="http://127.0.0.1:8760", alias="HEADRACE_API_URL")
    """Where clients reach the API."""
    policy_url: str = Field(default="http://127.0.0.1:8761", alias="HEADRACE_POLICY_URL")
    """Where workers and trainer reach the policy gateway."""
    policy_public_url: str = Field(default="", alias="HEADRACE_POLICY_PUBLIC_URL")
    """Where task apps reach the policy gateway; empty means the same as HEADRACE_POLICY_URL."""
    dashboard_url: str = Field(default="http://127.0.0.1:8762", alias="HEADRACE_DASHBOARD_URL")
    """Where a browser reaches the dashboard."""
    flower_url: str = Field(default="", alias="HEADRACE_FLOWER_URL")
    """Where a browser reaches Flower; empty where it does not run."""
    pool: str = Field(default="local-cpu", alias="HEADRACE_POOL")
    """The pool that this process belongs to."""
    slot: int = Field(default=0, alias="HEADRACE_SLOT", ge=0)
    """The trainer slot (one trainer with its own engine) within the pool."""
    inference_idle_s: float = Field(default=300.0, alias="HEADRACE_INFERENCE_IDLE", gt=0)
    """Seconds without a call after which the engine is no longer held for inference."""
    inference_wait_s: float = Field(default=60.0, alias="HEADRACE_INFERENCE_WAIT", gt=0)
    """Seconds for which an inference call waits for its model before it is answered with 503."""
    inference_max_model_len: int = Field(default=32768, alias="HEADRACE_INFERENCE_MAX_MODEL_LEN", ge=16)
    """Longest sequence in tokens that is served for inference; a model made for less keeps its own."""
    secret_key: str = Field(default="", alias="HEADRACE_SECRET_KEY")
    """64 hex digits that open environment keys at rest; API and workers need it."""
    worker_token: str = Field(default="", alias="HEADRACE_WORKER_TOKEN")
    """Internal token of workers at the gateway: may open and end sessions, may not publish."""
    trainer_token: str = Field(default="", alias="HEADRACE_TRAINER_TOKEN")
    """Internal token of the trainer and evaluator at the gateway: may also publish and probe."""
    plugins: str = Field(default="", alias="HEADRACE_PLUGINS")
    """Packages, separated by commas, from which a job's config may name functions by import path."""

    @property
    def plugin_packages(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.plugins.split(",") if name.strip())

    @property
    def artifacts(self) -> Path:
        return self.home / "artifacts"

    @property
    def models_toml(self) -> Path:
        """The operator's model aliases; absent means none."""
        return self.home / "models.toml"

    @property
    def sql_url(self) -> str:
        return self.database_url or f"sqlite:///{self.home / 'headrace.db'}"

    @cached_property
    def public_policy_url(self) -> str:
        return (self.policy_public_url or self.policy_url).rstrip("/")
