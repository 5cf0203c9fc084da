"""Every key, queue and task name in Redis. Keys of a job carry the hash tag `{job_id}`."""

from __future__ import annotations

ROLLOUT_TASK = "headrace.rollout"
"""Celery task that plays one `RolloutOrder`."""
ACTIVE_STREAMS = "headrace:streams"
"""Hash: job_id -> org_id of each job whose trajectory stream the recorder has to read."""


def rollout_queue(pool: str) -> str:
    return f"rollouts.{pool}"


def job_wakeup(pool: str, job_type: str) -> str:
    """List on which the API pushes job ids; the claim itself is an UPDATE in SQL."""
    kind = "evals" if job_type == "eval" else "jobs"
    return f"headrace:{kind}:{pool}"


def trajectories(job_id: str) -> str:
    return f"headrace:{{{job_id}}}:trajectories"


def seen(job_id: str) -> str:
    """Hash: rollout_id -> session_id of the accepted attempt on the current timeline."""
    return f"headrace:{{{job_id}}}:seen"


def recorded(job_id: str) -> str:
    """Set: session ids of the attempts that are on the stream without having been accepted."""
    return f"headrace:{{{job_id}}}:recorded"


def timeline(job_id: str) -> str:
    """The job's current timeline (fencing token)."""
    return f"headrace:{{{job_id}}}:timeline"


def cancelled(job_id: str) -> str:
    return f"headrace:{{{job_id}}}:cancelled"


def environment_keys(job_id: str) -> str:
    """List: each of the org's environment keys as ciphertext (`queue.secrets`)."""
    return f"headrace:{{{job_id}}}:environment_keys"


def rollout_lease(job_id: str, rollout_id: str) -> str:
    """Lease of who plays a rollout, labelled `attempt_label`."""
    return f"headrace:{{{job_id}}}:lease:{rollout_id}"


def attempt_label(timeline: int, attempt: int) -> str:
    """Label of one attempt's lease: attempts are counted anew on each timeline."""
    return f"{timeline}.{attempt}"


def orders_out(job_id: str) -> str:
    """Hash: rollout_id -> attempt number ordered and not yet finished on the current timeline."""
    return f"headrace:{{{job_id}}}:orders"


def slot_owner(pool: str, slot: int) -> str:
    """Lease of whoever decides what the slot's engine serves."""
    return f"headrace:slot:{{{pool}/{slot}}}:owner"


def slot_fence(pool: str, slot: int) -> str:
    """Counter of slot take-overs; its value is the owner's fence."""
    return f"headrace:slot:{{{pool}/{slot}}}:fence"


def slot_desired(pool: str, slot: int) -> str:
    """JSON of the slot's `ServeSpec`."""
    return f"headrace:slot:{{{pool}/{slot}}}:desired"


def slot_status(pool: str, slot: int) -> str:
    """JSON of the slot's `PolicyStatus`, written by its gateway, expiring when the gateway is gone."""
    return f"headrace:slot:{{{pool}/{slot}}}:status"


def inference_job(pool: str) -> str:
    """What stands in a job's place where the API answers with a trained model; never a job in SQL."""
    return f"inference-{pool}"


def inference_wishes(pool: str, slot: int) -> str:
    """Hash: call id -> `Wish` of each inference call that waits for its model."""
    return f"headrace:inference:{{{pool}/{slot}}}:wishes"


def inference_offer(pool: str, slot: int) -> str:
    """JSON of the slot's `Offer`, expiring when its writer is gone."""
    return f"headrace:inference:{{{pool}/{slot}}}:offer"


def inference_calls(pool: str, slot: int) -> str:
    """Sorted set: id of each inference call in flight -> Unix time until which it counts as such."""
    return f"headrace:inference:{{{pool}/{slot}}}:calls"


def inference_used(pool: str, slot: int) -> str:
    """Unix time at which the last inference call began."""
    return f"headrace:inference:{{{pool}/{slot}}}:used"


def inference_failure(pool: str, slot: int, key: str) -> str:
    """Sentence on why the model of this key could not be served, for a while."""
    return f"headrace:inference:{{{pool}/{slot}}}:failed:{key}"


def session(session_id: str) -> str:
    """Hash of one session: its `SessionOpen`, state and the number of calls."""
    return f"headrace:session:{{{session_id}}}"


def session_calls(session_id: str) -> str:
    """List of the session's captured calls."""
    return f"headrace:session:{{{session_id}}}:calls"
