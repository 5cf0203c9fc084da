"""The task app as the API and this machine see it, said in the transcript's words."""

from __future__ import annotations

from headrace.client import ApiClient
from headrace.contracts.task_app import TaskFacts
from headrace.errors import HeadraceError, Unauthorized, Unavailable
from headrace_cli.envfiles import environment_keys
from headrace_cli.keyring import minted, upload_environment_keys
from headrace_cli.preflight import REFUSED, Look, look
from headrace_cli.session import Json, Session
from headrace_cli.submission import Submission


def verified(session: Session, api: ApiClient, submission: Submission) -> TaskFacts:
    """What the task app says of itself, once the API and this machine have asked it with every key.

    The keys of the environment are stored at the API first, unless the app refuses them all. Raises the
    error that says which side failed, after a line for each key.
    """
    url, policy_url = submission.task_url, submission.policy_url
    assert url is not None
    keys = environment_keys(session.environ)
    seen = look(url, keys)
    if keys and not seen.is_refusal:
        upload_environment_keys(api, keys)
    verdict = api.verify_task_app(url, policy_url)
    if not keys and not verdict["any_ok"] and _may_mint(session, verdict, seen):
        key = minted(session, api)
        if key is not None:
            session.environ["ENVIRONMENT_API_KEY"] = key
            keys, seen, verdict = [key], look(url, [key]), api.verify_task_app(url, policy_url)
            if not verdict["any_ok"]:
                raise _started_without(session, url)
    if not verdict["any_ok"] or (keys and seen.is_refusal):
        raise _refused(session, api, url, verdict, seen)
    _say(session, url, verdict, seen)
    return facts_of(seen, verdict)


def facts_of(seen: Look, verdict: Json) -> TaskFacts:
    """From the app's own answer, else from what the API read of it."""
    if seen.facts is not None:
        return seen.facts
    told = verdict.get("task_info")
    return TaskFacts.model_validate(told) if told else TaskFacts()


def describe(facts: TaskFacts) -> list[str]:
    """What the app declares, a line each."""
    limits = [f"{facts.max_turns} turns"] if facts.max_turns else []
    limits += [f"{facts.timeout_s:g} s"] if facts.timeout_s else []
    ranges = facts.seed_ranges or ({"": facts.seed_range} if facts.seed_range else {})
    seeds = ", ".join(f"{low} to {high} {split}".strip() for split, (low, high) in ranges.items())
    capabilities = ", ".join(f"{name} = {value}" for name, value in facts.capabilities.items())
    lines = (
        ("splits", ", ".join(_split(facts, name) for name in facts.splits)),
        ("seeds", seeds),
        ("rubrics", "; ".join(facts.rubrics)),
        ("limits", ", ".join(limits)),
        ("capabilities", capabilities),
    )
    return [f"  {name}: {text}" for name, text in lines if text]


def _split(facts: TaskFacts, name: str) -> str:
    notes = ["default"] if name == facts.default_split else []
    notes += [str(facts.sizes[name])] if name in facts.sizes else []
    return f"{name} ({', '.join(notes)})" if notes else name


def _may_mint(session: Session, verdict: Json, seen: Look) -> bool:
    """A new key helps where a key is what is missing; without a terminal the option decides alone."""
    refused = seen.is_refusal or any(a.get("status") in REFUSED for a in verdict["attempts"])
    return refused or session.options.mint


def _say(session: Session, url: str, verdict: Json, seen: Look) -> None:
    statuses = [attempt.get("status") for attempt in verdict["attempts"]]
    session.say(f"Verification OK (candidates={verdict['candidates_first15']}, statuses={statuses})")
    if seen.is_refusal:
        session.say("Task app healthy (asked without a key; the API has one that it takes)")
    elif isinstance(seen.error, Unavailable):
        session.warn(f"{seen.error.message}; the API reaches it, and the job is played from there")
    elif seen.error is not None:
        raise seen.error
    else:
        session.say("Task app healthy")
    for line in describe(facts_of(seen, verdict)):
        session.say(line)
    callback = verdict.get("policy_callback") or {}
    if callback.get("is_reachable"):
        session.say(f"Policy callback OK ({callback.get('url')})")
    elif callback.get("is_reachable") is False:
        session.warn(f"policy callback failed: {callback.get('detail')}")


def _refused(session: Session, api: ApiClient, url: str, verdict: Json, seen: Look) -> HeadraceError:
    """Say each key's outcome, then give the error that names the side at fault."""
    attempts = verdict["attempts"]
    if attempts and not verdict["any_ok"]:
        statuses = [attempt.get("status") for attempt in attempts]
        n = verdict["candidates_first15"]
        session.warn(f"verification failed (candidates={n}, statuses={statuses})")
    for line in (*(() if verdict["any_ok"] else map(_line, attempts)), *seen.lines):
        session.warn(f"  {line}")
    if seen.error is not None:
        return seen.error
    if any(attempt.get("status") in REFUSED for attempt in attempts):
        return Unauthorized(
            f"the task app at {url} answers here, but refuses every key that the API holds: store the right one "
            "with `headrace keys upload-env`"
        )
    return Unavailable(
        f"the task app at {url} answers here, but not to the API at {api.base_url}; "
        "give a task_url that the API's machine can reach"
    )


def _line(attempt: Json) -> str:
    prefix, status = attempt.get("key_prefix"), attempt.get("status") or 0
    who = f"key {prefix}" if prefix else "without a key"
    cause = attempt.get("cause") or attempt.get("error") or "it answers in an unknown way"
    return f"{who} from the API: {status} at {attempt.get('path', '/task_info')}: {cause}"


def _started_without(session: Session, url: str) -> HeadraceError:
    files = session.environment.files
    path = files[-1] if files else ".env"
    return Unauthorized(
        f"the task app at {url} was started without the new key: start it again with it, as in "
        f"`headrace serve APP --env-file {path}`, and repeat this command"
    )
