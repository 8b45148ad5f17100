"""Many replicas in virtual time: what a routing policy does to hits, waits and throughput as a cluster grows."""
