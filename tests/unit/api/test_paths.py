from __future__ import annotations

import pytest

from headrace_api.paths import canonical


@pytest.mark.parametrize(
    ("path", "registered"),
    [
        ("/rl/jobs", "/rl/jobs"),
        ("/api/rl/jobs", "/rl/jobs"),
        ("/api/v1/rl/jobs/", "/rl/jobs/"),
        ("/rl/jobs/job_1", "/jobs/job_1"),
        ("/api/v1/learning/jobs/job_1/events", "/jobs/job_1/events"),
        ("/sft/jobs/job_1/cancel", "/jobs/job_1/cancel"),
        ("/api/learning/models/ft:a/b:job_1", "/learning/models/ft:a/b:job_1"),
        ("/api", "/api"),
        ("/api/v2/jobs", "/v2/jobs"),
        ("/apiary", "/apiary"),
    ],
)
def test_other_names_of_a_route_lead_to_it(path: str, registered: str) -> None:
    assert canonical(path) == registered
