"""Token rows for training, built from the calls of a trajectory without ever seeing text.

It does not know rewards or advantages.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

from headrace.contracts.policy import Call, PolicyVersion, VersionSpan
from headrace.contracts.trajectory import Trajectory
from headrace.errors import DataError

NOT_SAMPLED = -1
"""In `Sequence.call_of_token`: no call sampled this token for training."""
_LOGPROB_SLACK = 1e-4
"""How far above 0 rounding may push the logprob of a token that was all but certain."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One trainable token row. All columns have one entry per token; T is its length.

    A row ends with a token the policy sampled; its first token is never one, since nothing
    predicts it. Construction raises DataError, naming the rollout, where the columns contradict
    each other.
    """

    rollout_id: str
    session_id: str
    token_ids: array
    """int32, shape (T,): prompt, replies, and what came between them."""
    mask: bytes
    """1 on tokens that the policy sampled and that are trained in this row, else 0."""
    behaviour_logprobs: array
    """float64, shape (T,): the engine's log p at `temperature`; 0.0 where the mask is 0."""
    temperature: float
    version_spans: tuple[VersionSpan, ...]
    """Which policy version sampled row tokens [start, end); they tile the masked tokens in order."""
    call_of_token: tuple[int, ...]
    """Index of the call that sampled each masked token, else NOT_SAMPLED."""
    n_trainable: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_trainable", sum(self.mask))
        problem = _problem(self)
        if problem is not None:
            raise DataError(f"rollout {self.rollout_id}: {problem}; the trajectory cannot be trained on")

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def min_version(self) -> PolicyVersion:
        """The oldest version that sampled a trained token."""
        return min((span.version for span in self.version_spans), key=_age)

    @property
    def max_version(self) -> PolicyVersion:
        return max((span.version for span in self.version_spans), key=_age)


def sequences_of(trajectory: Trajectory) -> list[Sequence]:
    """The token rows of a trajectory, in order of each row's first call; [] when nothing is trainable.

    A call that continues another extends its row. A second call that continues the same one (a
    fork), or one at another temperature, gets a row of its own in which the shared prefix is
    context, so each sampled token is trained exactly once. Untrainable calls appear only as
    context of later ones; calls that ended in an error are left out.
    """
    calls = _calls_by_index(trajectory)
    rows: list[list[Call]] = []
    row_ending_with: dict[int, list[Call]] = {}
    for call in _worth_a_row(calls):
        row = row_ending_with.pop(call.parent, None) if call.parent is not None else None
        if row is not None and row[-1].temperature != call.temperature:
            row_ending_with[row[-1].index] = row
            row = None
        if row is None:
            row = []
            rows.append(row)
        row.append(call)
        row_ending_with[call.index] = row
    sequences = [_sequence(trajectory, calls, row) for row in rows]
    sampled = sum(len(call.sampled_ids) for call in calls.values() if _is_trained(call))
    if sampled != sum(sequence.n_trainable for sequence in sequences):
        raise DataError(
            f"rollout {trajectory.rollout_id}: {sampled} trainable tokens were sampled but the rows hold "
            f"{sum(sequence.n_trainable for sequence in sequences)}; the trajectory cannot be trained on"
        )
    return sequences


def _age(version: PolicyVersion) -> tuple[int, int]:
    return (version.timeline, version.n)


def _is_trained(call: Call) -> bool:
    return call.is_trainable and call.error is None and len(call.sampled_ids) > 0


def _calls_by_index(trajectory: Trajectory) -> dict[int, Call]:
    calls: dict[int, Call] = {}
    for call in sorted(trajectory.calls, key=lambda call: call.index):
        if call.index in calls:
            raise DataError(f"rollout {trajectory.rollout_id}: two calls have the index {call.index}")
        if call.parent is not None and call.parent not in calls:
            raise DataError(
                f"rollout {trajectory.rollout_id}: call {call.index} continues call {call.parent}, "
                "which is not an earlier call of the session"
            )
        calls[call.index] = call
    return calls


def _worth_a_row(calls: dict[int, Call]) -> list[Call]:
    """Calls that are trained on or lead to one that is, in order; others would only be dead tail."""
    needed: set[int] = set()
    for call in reversed(calls.values()):
        if _is_trained(call):
            needed.add(call.index)
        if call.index in needed and call.parent is not None:
            needed.add(call.parent)
    return [call for call in calls.values() if call.index in needed]


def _tokens(calls: dict[int, Call], index: int | None) -> array:
    """Everything up to and with the reply of call `index`."""
    chain: list[Call] = []
    while index is not None:
        chain.append(calls[index])
        index = calls[index].parent
    tokens = array("i")
    for call in reversed(chain):
        tokens.extend(call.new_prompt_ids)
        tokens.extend(call.sampled_ids)
    return tokens


def _sequence(trajectory: Trajectory, calls: dict[int, Call], row: list[Call]) -> Sequence:
    tokens = _tokens(calls, row[0].parent)
    mask = bytearray(len(tokens))
    logprobs = array("d", bytes(8 * len(tokens)))
    call_of_token = [NOT_SAMPLED] * len(tokens)
    spans: list[VersionSpan] = []
    for call in row:
        n_prompt, n_sampled = len(call.new_prompt_ids), len(call.sampled_ids)
        is_trained = _is_trained(call)
        start = len(tokens) + n_prompt
        tokens.extend(call.new_prompt_ids)
        tokens.extend(call.sampled_ids)
        mask.extend(bytes(n_prompt) + bytes([is_trained]) * n_sampled)
        logprobs.extend([0.0] * n_prompt)
        logprobs.extend(call.sampled_logprobs if is_trained else [0.0] * n_sampled)
        call_of_token.extend([NOT_SAMPLED] * n_prompt)
        call_of_token.extend([call.index if is_trained else NOT_SAMPLED] * n_sampled)
        if is_trained:
            spans.extend(
                VersionSpan(version=span.version, start=start + span.start, end=start + span.end)
                for span in call.version_spans
            )
    return Sequence(
        rollout_id=trajectory.rollout_id,
        session_id=trajectory.session_id,
        token_ids=tokens,
        mask=bytes(mask),
        behaviour_logprobs=logprobs,
        temperature=row[-1].temperature,
        version_spans=tuple(spans),
        call_of_token=tuple(call_of_token),
    )


def _problem(sequence: Sequence) -> str | None:
    """What is wrong with the columns, in words; None when nothing is."""
    n = len(sequence.token_ids)
    columns = (len(sequence.mask), len(sequence.behaviour_logprobs), len(sequence.call_of_token))
    if columns != (n, n, n):
        return (
            f"{n} tokens but {columns[0]} mask entries, {columns[1]} logprobs and {columns[2]} call indices"
        )
    if not sequence.n_trainable or sequence.mask.strip(b"\0\1"):
        return (
            "the mask marks no token" if not sequence.n_trainable else "the mask holds other values than 0, 1"
        )
    if sequence.mask[0]:
        return "the first token is marked as sampled, but no token precedes it"
    if min(sequence.token_ids) < 0:
        return f"token id {min(sequence.token_ids)} is negative"
    if not (math.isfinite(sequence.temperature) and sequence.temperature > 0):
        return f"temperature {sequence.temperature} is not above 0"
    return _logprob_problem(sequence) or _coverage_problem(sequence)


def _logprob_problem(sequence: Sequence) -> str | None:
    for position, (is_sampled, logprob) in enumerate(
        zip(sequence.mask, sequence.behaviour_logprobs, strict=True)
    ):
        if is_sampled and not (math.isfinite(logprob) and logprob <= _LOGPROB_SLACK):
            return f"the logprob of sampled token {position} is {logprob}"
        if not is_sampled and logprob != 0.0:
            return f"token {position} was not sampled but has the logprob {logprob}"
    return None


def _coverage_problem(sequence: Sequence) -> str | None:
    covered = bytearray(len(sequence.mask))
    for span in sequence.version_spans:
        covered[span.start : span.end] = b"\1" * (span.end - span.start)
    if bytes(covered) != sequence.mask:
        return "the version spans do not cover exactly the sampled tokens"
    for position, (is_sampled, call) in enumerate(zip(sequence.mask, sequence.call_of_token, strict=True)):
        if bool(is_sampled) != (call != NOT_SAMPLED):
            return f"token {position} has mask {is_sampled} but call index {call}"
    return None
