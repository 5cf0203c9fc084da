"""Work in flight, in Redis: orders, trajectory streams, leases, cancel flags. All can be rebuilt from SQL."""
