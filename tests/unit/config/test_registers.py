"""Every key of every config is in exactly one register: it acts and a test shows it, or has a reason.

The contract's own list of keys is held against the registers, too.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.unit.config.effects import PROVEN, READ, SEEN

from headrace.config import explain
from headrace.config.not_used import NOT_USED, reason
from headrace.config.refused import REFUSED
from headrace.config.walk import keys
from headrace.contracts.job import JobType

ROOT = Path(__file__).parents[3]
TYPES = list(JobType)
RECEIVERS = (
    "backend|config|spec|hyper|rollouts|rollout|training|policy|job|data|validation|evaluation|services|"
    "evaluation_job"
)
"""Names by which the services hold a config or one of its sections."""


def seen(job_type: JobType) -> set[str]:
    return {effect.key for effect in SEEN[job_type]}


@pytest.mark.parametrize("job_type", TYPES)
def test_each_key_acts_is_refused_or_has_a_reason_for_having_no_effect(job_type: JobType) -> None:
    acting = seen(job_type) | PROVEN[job_type].keys() | READ[job_type]
    refused = {refusal.key for refusal in REFUSED[job_type]} | SINGLE_VALUED[job_type]
    for key in keys(job_type):
        registers = [
            key.name in acting,
            key.name in refused - acting and reason(job_type, key.name) is None,
            reason(job_type, key.name) is not None,
        ]
        assert sum(registers) == 1, (key.name, registers)


SINGLE_VALUED = {
    JobType.RL: {"algorithm.method", "model.trainer_mode"},
    JobType.SFT: {"algorithm.method"},
    JobType.EVAL: {"model.trainer_mode"},
}
"""Keys of which all accepted values mean the same; any other value is an error that lists them."""


@pytest.mark.parametrize("job_type", TYPES)
def test_no_register_names_a_key_that_does_not_exist(job_type: JobType) -> None:
    names = {key.name for key in keys(job_type)}
    registered = seen(job_type) | PROVEN[job_type].keys() | READ[job_type]
    assert registered <= names
    for key in NOT_USED[job_type]:
        parts = key.split(".")
        assert any(".".join(parts[:n]) in names for n in range(1, len(parts) + 1)), key


@pytest.mark.parametrize("job_type", TYPES)
def test_each_reason_says_why_and_what_to_use(job_type: JobType) -> None:
    whys = [*NOT_USED[job_type].values(), *(refusal.why for refusal in REFUSED[job_type])]
    for why in whys:
        assert len(why.split()) >= 4, why
        assert not why.endswith("."), why


@pytest.mark.parametrize("job_type", TYPES)
def test_each_test_that_proves_a_key_exists(job_type: JobType) -> None:
    for key, proof in PROVEN[job_type].items():
        path, _, name = proof.partition("::")
        tree = ast.parse((ROOT / "tests" / path).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, (
            key,
            proof,
        )


def test_each_key_that_only_whole_processes_show_is_read_by_one() -> None:
    folders = [ROOT / "services", ROOT / "cli"]
    source = "\n".join(path.read_text() for folder in folders for path in sorted(folder.rglob("*.py")))
    for job_type in TYPES:
        for key in READ[job_type] | PROVEN[job_type].keys() - UNREAD:
            name = key.rpartition(".")[2]
            assert re.search(rf"\b_?(?:{RECEIVERS})\.{name}\b", source), f"no service reads {job_type} {key}"


UNREAD = {
    *("type", "job_type", "algorithm.type", "compute.gpu_type", "compute.gpu_count"),
    *("training.clip_low", "training.clip_high"),
}
"""What the config itself follows; the clip's bounds are read with the loss's own defaults, as `bound_low`."""


CONTRACT = """
algorithm: type method variety
services: task_url judge_url environment
compute: gpu_type gpu_count nodes topology
compute.topology: reference_placement
topology: type gpus_for_vllm gpus_for_training gpus_for_ref tensor_parallel
vllm: tensor_parallel_size max_model_len
reference: placement port tp health_max_wait_s health_interval_ms
model: source base trainer_mode label
lora: r alpha dropout target_modules
rollout: env_name policy_name max_turns episodes_per_batch max_concurrent_rollouts env_config policy_config
rollout: batches_per_step ops use_vision max_images_per_step image_only_mode
training: num_epochs iterations_per_epoch max_turns batch_size group_size learning_rate lora rewards
training: gradient_accumulation_steps max_accumulated_minibatch log_interval weight_sync_interval
training: step_rewards_enabled step_rewards_mode step_rewards_indicator_lambda step_rewards_beta
training: step_rewards_strategy event_rewards_kind async_semaphore_max max_staleness loss advantage kl
training.weight_sync: enable targets mode direct verify_every_k interval
training.rollouts: prompts_per_iteration rollouts_per_prompt max_concurrent seeds split seed_order max_turns
training.rollouts: ops reference deadline_s max_attempts failure_reward min_group_members
training.rollouts.record: trace format logprobs
evaluation: instances every_n_iters seeds samples temperature split
judge: type timeout_s enabled reward_blend
judge.reward_blend: env event outcome
judge.options: event outcome provider model rubric_id rubric_overrides tracks weights max_concurrency
rubric: enabled model api_base api_key_env
rubric.weights: env event outcome
rubric.event: rubric_id criteria
rubric.outcome: rubric_id criteria
policy: model_name source max_tokens temperature top_p top_k repetition_penalty stop_sequences trainer_mode
policy: label inference_url constrained history
backend: compute_pool topology_id
data: seed_start episodes_per_iteration evaluation_split evaluation_episodes topology validation_path
job: model data data_path poll_seconds
training: mode use_qlora
training.validation: enabled evaluation_strategy eval_steps save_best_model_at_end metric_for_best_model
training.validation: greater_is_better
hyperparameters: n_epochs batch_size global_batch per_device_batch gradient_accumulation_steps
hyperparameters: sequence_length learning_rate warmup_ratio train_kind weight_decay parallelism
hyperparameters.parallelism: use_deepspeed deepspeed_stage fsdp bf16 fp16 activation_checkpointing
hyperparameters.parallelism: tensor_parallel_size pipeline_parallel_size
evaluation_job: seeds samples temperature baseline task_url split
"""
"""Sections and keys of the wire contract, and of our own documented additions."""


def contract_keys() -> list[str]:
    lines = [line.split(": ") for line in CONTRACT.split("\n") if line]
    found = [f"{section}.{name}" for section, names in lines for name in names.split()]
    return [*found, "type", "job_type", "tags", "smoke"]


@pytest.mark.parametrize("key", contract_keys())
def test_each_key_of_the_contract_can_be_explained(key: str) -> None:
    text = explain(key)
    assert "acts" in text or "accepted, not used" in text or "a section of" in text or "free table" in text
