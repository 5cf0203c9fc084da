"""A job as the pages show it, from the API's job object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.clock import now
from headrace_dashboard.views.format import duration, parse_time

Json = dict[str, Any]

TYPE_NAMES = {"rl": "RL", "sft": "SFT", "eval": "Evaluation"}
UNITS = {"rl": "iterations", "sft": "steps", "eval": "rollouts"}
TERMINAL = {"succeeded", "failed", "cancelled"}
RESUMABLE = {"failed", "cancelled"}
NOTE_LABELS = {
    "config.ignored": "Ignored",
    "config.not_used": "Accepted, not used",
    "config.overridden": "Overridden",
    "config.replaced": "Replaced",
    "config.low_temperature": "Low temperature",
    "config.seeds_overlap": "Seeds overlap",
    "model.mapped": "Model mapped",
}
"""By event type behind the job's kind (`rl.config.replaced`)."""
CHECKPOINT_METRICS = (
    "reward.mean",
    "success.rate",
    "eval.reward_mean",
    "eval.success",
    "train.loss",
    "val.loss",
)
_ENGINE_EVENTS = {"rl.policy.starting": "starting", "rl.policy.ready": "ready", "rl.policy.failed": "failed"}


@dataclass(frozen=True)
class NoteView:
    """A decision about the config that the job's owner should know of."""

    type: str
    label: str
    message: str


@dataclass(frozen=True)
class JobView:
    job_id: str
    type: str
    type_name: str
    status: str
    tone: str
    """Class of the status: the status itself, or `paused`, `cancelling`."""
    status_text: str
    reason: str | None
    """Why it waits or is paused; one sentence."""
    error: str | None
    iteration: int
    iterations: int
    unit: str
    model: str
    model_id: str | None
    pool: str
    tags: tuple[str, ...]
    created_at: str | None
    elapsed: str
    timeline: int
    linked_job_id: str | None
    is_terminal: bool
    is_cancellable: bool
    is_resumable: bool
    notes: tuple[NoteView, ...] = ()
    """What of the config had no effect or was replaced, and where a model's name was mapped."""

    @property
    def notes_text(self) -> str:
        return f"{len(self.notes)} note{'' if len(self.notes) == 1 else 's'} on the config"

    @property
    def progress_text(self) -> str:
        return f"{self.iteration:,} of {self.iterations:,} {self.unit}" if self.iterations else ""


def job_view(job: Json) -> JobView:
    """The job as shown. Keys that the API left out read as empty."""
    kind = job.get("type") or "rl"
    status = job.get("status") or "queued"
    is_terminal = status in TERMINAL
    tone, text = _tone(job, status)
    return JobView(
        job_id=job["job_id"],
        type=kind,
        type_name=TYPE_NAMES.get(kind, kind),
        status=status,
        tone=tone,
        status_text=text,
        reason=None if is_terminal else (job.get("paused_reason") or job.get("waiting_reason")),
        error=job.get("error"),
        iteration=job.get("iteration") or 0,
        iterations=job.get("iterations") or 0,
        unit=UNITS.get(kind, "steps"),
        model=job.get("model") or "",
        model_id=job.get("model_id"),
        pool=job.get("pool") or "",
        tags=tuple(f"{name}: {value}" for name, value in (job.get("tags") or {}).items()),
        created_at=job.get("created_at"),
        elapsed=elapsed(job),
        timeline=job.get("timeline") or 0,
        linked_job_id=job.get("linked_job_id"),
        is_terminal=is_terminal,
        is_cancellable=not is_terminal and not job.get("cancel_requested"),
        is_resumable=status in RESUMABLE,
        notes=tuple(_note(note) for note in job.get("notes") or ()),
    )


def _note(note: Json) -> NoteView:
    kind = str(note.get("type") or "")
    label = NOTE_LABELS.get(kind.partition(".")[2], "Note")
    return NoteView(kind, label, str(note.get("message") or ", ".join(map(str, note.get("keys") or ()))))


def checkpoint_views(checkpoints: Iterable[Json]) -> list[Json]:
    """Checkpoints with the few metrics that tell one from another."""
    return [
        {**one, "metrics": {n: v for n, v in (one.get("metrics") or {}).items() if n in CHECKPOINT_METRICS}}
        for one in checkpoints
    ]


def summary(jobs: Sequence[Json]) -> str:
    """How many are in each state that is not over.

    >>> summary([{"status": "running"}, {"status": "queued"}, {"status": "running"}])
    '2 running, 1 queued'
    """
    counts = Counter(job.get("status") for job in jobs)
    return ", ".join(f"{counts[status]} {status}" for status in ("running", "queued") if counts[status])


def _tone(job: Json, status: str) -> tuple[str, str]:
    if status not in TERMINAL and job.get("cancel_requested"):
        return "cancelling", "cancelling"
    if status == "running" and job.get("paused_reason"):
        return "paused", "paused"
    return status, status


def elapsed(job: Json) -> str:
    """How long it ran, or has been running; empty before it started."""
    start, end = parse_time(job.get("started_at")), parse_time(job.get("finished_at"))
    if start is None:
        return ""
    return duration(max(0.0, ((end or now()) - start).total_seconds()))


def live_job(job: Json) -> Json:
    """What the page's script needs of the job with every update."""
    view = job_view(job)
    return {
        "status": view.status,
        "tone": view.tone,
        "status_text": view.status_text,
        "reason": view.reason,
        "iteration": view.iteration,
        "iterations": view.iterations,
        "progress_text": view.progress_text,
        "elapsed": view.elapsed,
        "is_terminal": view.is_terminal,
        "is_cancellable": view.is_cancellable,
        "timeline": view.timeline,
    }


@dataclass(frozen=True)
class EngineView:
    """What the newest engine event says."""

    state: str
    message: str
    at: str | None


def engine_view(events: Iterable[Json]) -> EngineView | None:
    """The engine's state by the newest event about it; None before there is one."""
    found = None
    for event in events:
        if event["type"] in _ENGINE_EVENTS:
            found = EngineView(
                _ENGINE_EVENTS[event["type"]], event.get("message") or "", event.get("created_at")
            )
    return found


@dataclass(frozen=True)
class Fact:
    label: str
    value: object


@dataclass(frozen=True)
class Report:
    """A part of a job's result: its own facts, then its parts."""

    title: str
    facts: tuple[Fact, ...]
    parts: tuple[Report, ...] = ()


def report(title: str, result: Json) -> Report | None:
    """The result of a job as headings and facts; None when there is nothing in it."""
    facts, parts = [], []
    for key, value in result.items():
        label = str(key).replace("_", " ").replace(".", " ")
        if isinstance(value, dict):
            part = report(label, value)
            parts += [part] if part else []
        elif isinstance(value, list) and value and not all(isinstance(v, int | float | str) for v in value):
            parts += [
                p
                for i, v in enumerate(value[:20])
                if isinstance(v, dict) and (p := report(f"{label} {i + 1}", v))
            ]
        elif value is not None:
            facts.append(Fact(label, value))
    return Report(title, tuple(facts), tuple(parts)) if facts or parts else None
