"""Upper bounds of the buckets of vLLM's histograms, 0.8 to 0.32 (its v1/metrics/buckets.py, and the recorded pages).

They differ with --custom-histogram-buckets.
"""

from typing import Final

TIME_TO_FIRST_TOKEN: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
"""Of `time_to_first_token_seconds`. Seconds."""

TIME_PER_TOKEN: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
"""Of `inter_token_latency_seconds`, which was `time_per_output_token_seconds` up to 0.11. Seconds."""
