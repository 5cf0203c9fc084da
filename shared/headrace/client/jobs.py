"""Routes of jobs and of what they leave behind: events, metrics, rewards, rollouts, ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.client.transport import Json, Transport, given

ATTEMPTS_PAGE = 500


class JobRoutes(Transport):
    """Every method returns the server's JSON as it came."""

    def create_rl_job(self, payload: Json, idempotency_key: str | None = None) -> Json:
        """Submit the payload of `POST /rl/jobs`; the same key and payload give the same job again."""
        return self._create("/rl/jobs", payload, idempotency_key)

    def create_sft_job(self, payload: Json, idempotency_key: str | None = None) -> Json:
        return self._create("/learning/jobs", payload, idempotency_key)

    def create_eval_job(self, payload: Json, idempotency_key: str | None = None) -> Json:
        return self._create("/eval/jobs", payload, idempotency_key)

    def start_job(self, job_id: str) -> Json:
        """Part of the SFT contract; a job is queued at creation, so this only returns it."""
        return self._send("POST", f"/jobs/{job_id}/start", json={})

    def get_job(self, job_id: str) -> Json:
        return self._send("GET", f"/jobs/{job_id}")

    def list_jobs(self, **filters: Any) -> list[Json]:
        """The jobs of one `jobs_page`, newest first."""
        return self.jobs_page(**filters)["jobs"]

    def jobs_page(
        self,
        *,
        type: str | None = None,
        status: str | None = None,
        pool: str | None = None,
        model: str | None = None,
        tags: dict[str, str] | None = None,
        data: dict[str, str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Json:
        """`{jobs: [...], has_more}`, newest first. `tags` and `data` filter by equality; `after` is the id
        of the last job seen."""
        params: list[tuple[str, Any]] = given(
            type=type, status=status, pool=pool, model=model, after=after, limit=limit
        )
        params += [("tag", f"{key}:{value}") for key, value in (tags or {}).items()]
        params += [(f"data.{key}", value) for key, value in (data or {}).items()]
        return self._send("GET", "/jobs", params=params)

    def cancel_job(self, job_id: str) -> Json:
        return self._send("POST", f"/jobs/{job_id}/cancel", json={})

    def resume_job(self, job_id: str) -> Json:
        """Queue a failed or cancelled job again; it goes on from its newest whole checkpoint."""
        return self._send("POST", f"/jobs/{job_id}/resume", json={})

    def clone_job(
        self,
        job_id: str,
        *,
        config: Json | None = None,
        overrides: Json | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """A new job with the same config, with `overrides` (`{"training.learning_rate": 1e-5}`) in it, or
        with `config` in its place."""
        body = dict(given(config=config, overrides=overrides, idempotency_key=idempotency_key))
        return self._send("POST", f"/jobs/{job_id}/clone", json=body)

    def runs(self, job_id: str) -> list[Json]:
        """One row per time the job was queued: `{run_number, status, created_at, started_at, ended_at}`."""
        return self._send("GET", f"/jobs/{job_id}/runs")["runs"]

    # Events, metrics, rewards

    def events(self, job_id: str, since_seq: int = 0, limit: int = 200) -> list[Json]:
        """Events with `seq > since_seq`, oldest first."""
        params = given(since_seq=since_seq, limit=limit)
        return self._send("GET", f"/jobs/{job_id}/events", params=params)["events"]

    def export_events(self, job_id: str, since_seq: int = 0) -> Iterator[Json]:
        """All events after `since_seq`, as a stream."""
        return self._rows(f"/jobs/{job_id}/events", given(since_seq=since_seq))

    def follow_events(self, job_id: str, since_seq: int = 0) -> Iterator[Json]:
        """Yield events as they come (server-sent), until the job is terminal.

        Raises Unavailable when the connection breaks: call again with the last `seq`.
        """
        messages = self._messages(f"/jobs/{job_id}/events", given(since_seq=since_seq))
        return (data for _, data in messages)

    def follow(self, job_id: str, since_seq: int = 0) -> Iterator[tuple[str, Json]]:
        """Like `follow_events` with the metrics between them: `("event", {...})` or `("metric", {...})`."""
        params = given(since_seq=since_seq, metrics=1)
        for name, data in self._messages(f"/jobs/{job_id}/events", params):
            yield ("metric" if name == "metric" else "event"), data

    def metrics(
        self, job_id: str, after_step: int = -1, name: str | None = None, limit: int = 5000
    ) -> list[Json]:
        """Points with `step > after_step`, ordered by step and name."""
        params = given(after_step=after_step, name=name, limit=limit)
        return self._send("GET", f"/jobs/{job_id}/metrics", params=params)["points"]

    def export_metrics(self, job_id: str, after_step: int = -1, name: str | None = None) -> Iterator[Json]:
        """All points after `after_step`, as a stream."""
        return self._rows(f"/jobs/{job_id}/metrics", given(after_step=after_step, name=name))

    def rewards(self, job_id: str, purpose: str | None = None) -> list[Json]:
        """Per iteration `{iteration, n, reward_mean, return_mean, std, events: {key: {frequency, mean}}}`;
        `purpose` ("train" or "eval") is by default what the job itself is."""
        return list(self.export_rewards(job_id, purpose))

    def export_rewards(self, job_id: str, purpose: str | None = None) -> Iterator[Json]:
        """The rows of `rewards`, as a stream."""
        return self._rows(f"/jobs/{job_id}/rewards", given(purpose=purpose))

    def rewards_page(
        self, job_id: str, *, purpose: str | None = None, after_step: int = -1, limit: int | None = None
    ) -> Json:
        """`{job_id, purpose, rewards: [...], has_more}`: whole iterations behind `after_step`."""
        params = given(purpose=purpose, after_step=after_step, limit=limit)
        return self._send("GET", f"/jobs/{job_id}/rewards", params=params)

    def timeline(self, job_id: str) -> list[Json]:
        return self._send("GET", f"/jobs/{job_id}/timeline")["events"]

    def checkpoints(self, job_id: str) -> list[Json]:
        """Newest first."""
        return self._send("GET", f"/jobs/{job_id}/checkpoints")["checkpoints"]

    def job_config(self, job_id: str) -> Json:
        """`{submitted, toml, resolved}`."""
        return self._send("GET", f"/jobs/{job_id}/config")

    def ledger(self, job_id: str) -> Json:
        """`{entries, summary: {planned, trained, not_trained: {reason: n}, is_complete}}`."""
        return self._send("GET", f"/jobs/{job_id}/ledger")

    # Rollouts

    def rollouts(
        self,
        job_id: str,
        *,
        purpose: str | None = None,
        iteration: int | None = None,
        status: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Json:
        """`{rollouts: [...], total}`, ordered by iteration, group and member."""
        params = given(purpose=purpose, iteration=iteration, status=status, limit=limit, offset=offset)
        return self._send("GET", f"/jobs/{job_id}/rollouts", params=params)

    def export_rollouts(
        self,
        job_id: str,
        *,
        purpose: str | None = None,
        iteration: int | None = None,
        status: str | None = None,
    ) -> Iterator[Json]:
        """All rollouts that fit, with their rewards and without their messages, as a stream."""
        return self._rows(
            f"/jobs/{job_id}/rollouts", given(purpose=purpose, iteration=iteration, status=status)
        )

    def rollout(self, rollout_id: str) -> Json:
        """`{rollout, attempts, event_rewards, trajectory}`; `trajectory` is None before it is recorded."""
        return self._send("GET", f"/rollouts/{rollout_id}")

    def failed_attempts(
        self, job_id: str, after: str | None = None, limit: int = ATTEMPTS_PAGE
    ) -> list[Json]:
        """Attempts at rollouts that were not scored, oldest first, each with its reason and the boundary
        at which it broke. `after` is the session id of the last one seen."""
        params = given(after=after, limit=limit)
        return self._send("GET", f"/jobs/{job_id}/failed-attempts", params=params)["attempts"]

    def _create(self, path: str, payload: Json, idempotency_key: str | None) -> Json:
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._send("POST", path, json=payload, headers=headers)
