from __future__ import annotations

import pytest

from headrace.config.pools import find_pool, find_topology, pools
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
