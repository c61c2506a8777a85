"""What the core must reach on the workloads: ratios to the scan in the same run, and limits of building and changing.

The best exact engine known on the machine where the targets were set is in README.md.
"""

from __future__ import annotations

REQUIRED_RATIO: dict[tuple[str, int], float] = {
    ("W1", 1_000): 9,
    ("W1", 10_000): 40,
    ("W1", 100_000): 110,
    ("W2", 1_000): 12,
    ("W2", 10_000): 200,
    ("W2", 100_000): 800,
    ("W2", 1_000_000): 330,
    ("W3", 5_000): 17,
    ("W3", 20_000): 37,
    ("W3", 100_000): 93,
    ("W4", 10_000): 16,
    ("W4", 100_000): 100,
    ("W4", 1_000_000): 230,
}
"""(workload, size) to how many times faster than the scan, for an index that takes inserts and deletes."""

BUILD_SECONDS_PER_MILLION = 1.0
BYTES_PER_SUBSCRIPTION = 200.0
CHANGE_US = 20.0
"""Each insert and each delete, at a million."""

LIMITS_FROM_SIZE = 100_000
"""Below, what an empty engine takes is most of the bytes and of the time."""
