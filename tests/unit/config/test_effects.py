"""Each key of a config that acts is shown to: what the services are given changes with it."""

from __future__ import annotations

import pytest
from tests.unit.config.effects import SEEN, Effect, config_with

from headrace.contracts.job import JobType

CASES = [
    pytest.param(job_type, effect, id=f"{job_type} {effect.key}")
    for job_type, effects in SEEN.items()
    for effect in effects
]


@pytest.mark.parametrize(("job_type", "effect"), CASES)
def test_a_key_changes_what_the_services_are_given(job_type: JobType, effect: Effect) -> None:
    with_key = config_with(job_type, (*effect.more, (effect.key, effect.value)))
    assert effect.see(with_key) == effect.expected
    assert effect.see(config_with(job_type, effect.more)) != effect.expected, "it was so without the key"
