"""The `spinney` command and what develops Spinney: tests, checks, benches, workloads, the simulator."""
