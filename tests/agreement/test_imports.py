"""Test modules share what they need by way of tests/support: each can be read, run and moved alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT


def imported_modules(path: Path) -> Iterator[str]:
    """Every module that a file imports, and every name that it imports from one, with dots."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def test_no_module_imports_from_a_test_module() -> None:
    imports = [
        (str(path.relative_to(ROOT)), name)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in imported_modules(path)
    ]
    assert [(path, name) for path, name in imports if any(part.startswith("test_") for part in name.split("."))] == []
    assert ("tests/agreement/test_imports.py", "tests.support.paths.ROOT") in imports
