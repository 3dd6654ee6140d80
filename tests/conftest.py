"""What holds for every test: how hypothesis searches, and the marker of the folder that a test is in."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Failures of assertions in the helpers show their values, as those of tests do.
pytest.register_assert_rewrite("tests.support")

# No limits of time: on a busy machine a single example may take seconds. Fixtures such as tmp_path may be shared by all
# examples of a test: each example overwrites its files.
settings.register_profile(
    "phasewatch", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("phasewatch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the name of its folder below tests/: `pytest -m unit`."""
    for item in items:
        folder, *_ = item.path.relative_to(Path(__file__).parent).parts
        item.add_marker(folder)
