from __future__ import annotations

from typing import Any

import pytest

from headrace.config.load import load
from headrace.config.pools import find_pool, find_topology, pools
from headrace.contracts.job import JobType
from headrace.errors import ConfigError


def test_the_first_pool_and_its_topology_are_the_default() -> None:
    name, pool = find_pool(None)
    topology_id, topology = find_topology(pool, None)
    assert (name, topology_id, topology.device, topology.dtype) == ("local-cpu", "one", "cpu", "float32")


def test_every_pool_has_its_default_topology() -> None:
    for pool in pools().values():
        assert find_topology(pool, None) == (pool.default_topology, pool.topologies[pool.default_topology])


def test_an_unknown_pool_or_topology_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"compute_pool = 'moon' is not known; pools: local-cpu"):
        find_pool("moon")
    with pytest.raises(ConfigError, match=r"topology_id = 'ring' is not known; .*: one"):
        find_topology(find_pool(None)[1], "ring")


def placed(**sections: Any) -> tuple[str | None, list[str]]:
    raw = {"services": {"task_url": "http://127.0.0.1:9"}, "model": {"base": "m"}, **sections}
    loaded = load(raw, JobType.RL, strict=True)
    return loaded.config.backend.compute_pool, [note.message for note in loaded.notes]


def test_the_operators_table_chooses_a_pool_for_the_devices_asked_for(monkeypatch) -> None:
    _, local = find_pool(None)
    fake = {
        "first": local.model_copy(update={"gpu_types": ("A10G",)}),
        "many": local.model_copy(update={"gpu_types": ("H100",)}),
        "eight": local.model_copy(update={"gpu_types": ("H100x8",)}),
    }
    monkeypatch.setattr("headrace.config.pools.pools", lambda: fake)
    assert placed(compute={"gpu_type": "h100"})[0] == "many"
    assert placed(compute={"gpu_type": "H100", "gpu_count": 8})[0] == "eight"
    assert placed(compute={"gpu_type": "H100", "gpu_count": 4})[0] == "many"
    assert placed(compute={"gpu_type": "TPU"})[0] == "first"
    assert placed(compute={"gpu_type": "H100"}, backend={"compute_pool": "first"})[0] == "first"
    assert placed(compute={})[0] is None


def test_common_devices_of_hosted_services_are_in_the_table_and_a_note_names_the_pool() -> None:
    for gpu in ("A10G", "H100"):
        pool, notes = placed(compute={"gpu_type": gpu, "gpu_count": 2})
        assert pool == "local-cpu"
        assert notes == [f"[compute] gpu_type = \"{gpu}\", gpu_count = 2 stands for pool 'local-cpu'"]
    _, notes = placed(compute={"gpu_type": "TPU"})
    assert notes == [
        "[compute] gpu_type = \"TPU\" is in no pool's gpu_types, so the job runs in the default pool 'local-cpu'"
    ]


def test_devices_without_effect_say_why() -> None:
    _, (note,) = placed(compute={"gpu_type": "H100", "nodes": 2}, backend={"compute_pool": "local-cpu"})
    assert note == "accepted, not used: [compute] nodes, [compute] gpu_type"
    assert placed(compute={"gpu_count": 2})[1] == ["accepted, not used: [compute] gpu_count"]
