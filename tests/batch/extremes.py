"""Limits at which access paths, blocks and files change, for the engine's property tests."""

from typing import Any

ALWAYS_SCAN = {"scan_setup": 0.0, "scan_pair": 0.0, "hash_row": 0.0, "hash_pair": 0.0}
NEVER_SCAN = {"scan_setup": float("inf")}
TINY = {
    **{"block_rows": 3, "block_bytes": 8, "stream_rows": 1, "matrix_cells": 2, "order_rows": 1, "output_bytes": 1},
    **{"many_slices": 1, "small_rows": 3, "file_bytes": 1, "spool_bytes": 64, "open_bytes": 1, "merged_chunks": 2},
    **{"tier_rows": 1, "shared_answers": 1, "asked_bytes": 0, "file_rows": 1, "narrow": 2.0, "sampled_pairs": 1},
    **{"missed_pairs": 40, "missed_asked": 1, "tail_rows": 1},
}
LARGE = {
    "tail_rows": 1 << 40,
    "narrow": 0.0,
    "order_rows": 1 << 30,
    "many_slices": 1 << 30,
    "merged_bytes": 1 << 40,
    "file_bytes": 1 << 40,
}
EXTREMES: list[dict[str, Any]] = [
    {},
    *(scans | sizes for scans in (ALWAYS_SCAN, NEVER_SCAN) for sizes in (TINY, LARGE)),
]
"""Limits under which a join must give the same results: each access path always and never, tiny blocks and large."""
