"""What a config may say and seldom means."""

from __future__ import annotations

from headrace.config.notes import Note
from headrace.config.rl import RLConfig
from headrace.config.walk import JobConfig

LOW_TEMPERATURE = 0.5


def warnings(config: JobConfig) -> tuple[Note, ...]:
    """A note on each."""
    return (*_low_temperature(config), *_shared_seeds(config)) if isinstance(config, RLConfig) else ()


def _low_temperature(config: RLConfig) -> list[Note]:
    if config.temperature >= LOW_TEMPERATURE:
        return []
    sentence = f"temperature = {config.temperature:g} is low: members of a group will be much alike"
    return [Note("rl.config.low_temperature", sentence, {"temperature": config.temperature})]


def _shared_seeds(config: RLConfig) -> list[Note]:
    shared = config.evaluated_training_seeds
    if not shared:
        return []
    sentence = f"{len(shared)} evaluation seeds are training seeds, too, so they measure nothing held out"
    return [Note("rl.config.seeds_overlap", sentence, {"seeds": list(shared[:20])})]
