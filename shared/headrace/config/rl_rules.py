"""What keys of an RL config must be to each other. Each rule raises ValueError with one sentence.

Keys of one meaning are compared before, on the raw config (`synonyms`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.config.ops import AGENT_OPS, n_agent_ops
from headrace.config.sections import refuse_reply_without_prompt

if TYPE_CHECKING:
    from headrace.config.rl import RLConfig

MAX_ITERATIONS = 10**9


def _batches_are_counted(config: RLConfig) -> None:
    if config.rollout.batches_per_step > 1 and config.training.batch_size is None:
        raise ValueError("[rollout] batches_per_step counts batches of [training] batch_size; set that, too")


def _groups_are_whole(config: RLConfig) -> None:
    if config.min_group_members > config.group_size:
        raise ValueError(
            f"[training.rollouts] min_group_members = {config.min_group_members} is above the group size "
            f"{config.group_size}"
        )


def _the_policy_is_asked(config: RLConfig) -> None:
    if not any(op in AGENT_OPS for op in config.ops):
        raise ValueError(f'ops = {list(config.ops)} never asks the policy; add "agent"')
    given, turns = n_agent_ops(config.ops), config.max_turns
    says_turns = config.rollout.max_turns or config.training.rollouts.max_turns or config.training.max_turns
    if says_turns and given > turns:
        raise ValueError(
            f"ops asks the policy {given} times in an episode of max_turns = {turns}; shorten ops or raise "
            "max_turns"
        )


def _seeds_are_distinct(config: RLConfig) -> None:
    seeds = config.training.rollouts.seeds
    if seeds == ():
        raise ValueError("[training.rollouts] seeds is an empty list; list task seeds or give {start, count}")
    if isinstance(seeds, tuple) and len(set(seeds)) != len(seeds):
        twice = next(seed for seed, n in Counter(seeds).items() if n > 1)
        raise ValueError(f"[training.rollouts] seeds holds {twice} more than once; list each seed once")


def _data_seeds_are_seeds(config: RLConfig) -> None:
    data = config.data
    furthest = (data.seed_start or 0) + max(data.episodes_per_iteration or 0, data.evaluation_episodes or 0)
    if furthest > 2**63:
        raise ValueError(f"[data] seed_start = {data.seed_start} leads beyond 64 bits; start lower")


def _evaluations_have_seeds(config: RLConfig) -> None:
    evaluation = config.evaluation
    if evaluation is None or not evaluation.every_n_iters:
        return
    if not evaluation.seeds and config.data.evaluation_episodes is None:
        raise ValueError("[evaluation] every_n_iters needs `seeds`: list the task seeds to play")


def _the_loss_is_of_the_variety(config: RLConfig) -> None:
    if config.algorithm.variety == "gspo" and config.training.loss != "gspo":
        raise ValueError(
            f'[algorithm] variety = "gspo" means [training] loss = "gspo", which is "{config.training.loss}"; '
            "keep one"
        )


def _the_buffer_fits_the_limit(config: RLConfig) -> None:
    buffer = config.training.overlong_buffer
    if buffer is not None and (config.max_reply_tokens is None or buffer > config.max_reply_tokens):
        raise ValueError(
            f"[training] overlong_buffer = {buffer} is taken off the limit of a reply, [policy] max_tokens = "
            f"{config.max_reply_tokens}; set a limit of at least the buffer"
        )


def _members_differ(config: RLConfig) -> None:
    if config.policy.temperature is None and config.rollout.policy_config.get("temperature") == 0:
        raise ValueError(
            "[rollout.policy_config] temperature = 0 makes all members of a group alike; use one above 0"
        )


def _a_prompt_fits(config: RLConfig) -> None:
    refuse_reply_without_prompt(config.policy, config.rollout)


def _the_job_ends(config: RLConfig) -> None:
    if config.iterations > MAX_ITERATIONS:
        raise ValueError(
            f"[training] num_epochs x iterations_per_epoch = {config.iterations} is above {MAX_ITERATIONS}"
        )


RULES: tuple[Callable[[RLConfig], None], ...] = (
    _batches_are_counted,
    _groups_are_whole,
    _the_policy_is_asked,
    _seeds_are_distinct,
    _data_seeds_are_seeds,
    _evaluations_have_seeds,
    _the_loss_is_of_the_variety,
    _the_buffer_fits_the_limit,
    _members_differ,
    _a_prompt_fits,
    _the_job_ends,
)
