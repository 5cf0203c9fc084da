"""Making the trainer's weights the served ones, and proving it each time."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.contracts.policy import ServeSpec
from headrace_trainer.policy_link import PROBE_LIMITS, PolicyLink, check_probe
from headrace_trainer.probe import N_TOKENS, probe_prompt, score
from headrace_trainer.rl_run import RLRun


@dataclass
class ServedPolicy:
    """The slot's engine as this run's policy."""

    link: PolicyLink
    spec: ServeSpec

    @classmethod
    def start(cls, run: RLRun, link: PolicyLink) -> ServedPolicy:
        """Have the engine serve the run's weights, and wait until the probe proves it."""
        job = run.job
        job.event(f"{job.prefix}.policy.starting", f"the policy engine loads {run.base.name}")
        spec = link.desire(run.folder, run.version, run.config.policy.max_model_len, run.base.engine_args)
        link.wait_until_served(spec, job.check)
        policy = cls(link, spec)
        gap = policy.prove(run)
        job.event(f"{job.prefix}.policy.ready", f"the policy serves version {run.version}", probe_max_abs=gap)
        return policy

    def publish(self, run: RLRun) -> float:
        """Swap the run's weights in and prove it; returns the probe's largest difference."""
        self.spec = self.link.publish(self.spec, run.folder, run.version, run.job.check)
        return self.prove(run)

    def prove(self, run: RLRun) -> float:
        prompt = probe_prompt(run.model.config.vocab_size, max_model_len=self.spec.max_model_len)
        result = self.link.probe(self.spec, prompt, N_TOKENS, run.job.check)
        scored = score(run.model, prompt, result.sampled_ids)
        return check_probe(result, scored, run.version, PROBE_LIMITS[self.spec.dtype])
