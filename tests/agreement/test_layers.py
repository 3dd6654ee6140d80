"""A package imports only packages of lower layers, and the picture in docs/architecture.md is the one of the code."""

import ast
import re
import shutil
from pathlib import Path

from phasewatch.backends import BACKENDS
from scripts.import_graph import (
    LAYERS,
    PACKAGE,
    PAGE,
    embed,
    find_arrows,
    find_knot,
    find_upward_imports,
    list_imports,
    render_graph,
)
from tests.support.paths import ROOT


def changed(folder: Path, module: str, line: str) -> Path:
    """A copy of the package with one more line in a module."""
    copy = shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "*.csv"))
    path = copy.joinpath(*module.split(".")).with_suffix(".py")
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    return copy


def test_a_package_imports_only_packages_of_lower_layers() -> None:
    assert find_upward_imports(PACKAGE) == []


def test_an_import_of_a_higher_layer_is_found_however_it_is_written(tmp_path: Path) -> None:
    for number, line in enumerate(
        (
            "from phasewatch.web.routes import View",
            "from phasewatch.web import routes",
            "from phasewatch import web",
            "import phasewatch.web.routes",
            "def late():\n    from phasewatch.web.routes import View",
        )
    ):
        upward = find_upward_imports(changed(tmp_path / str(number), "analysis.phases", line))
        assert [arrow.partition(" -> ")[0] for arrow in upward] == ["analysis.phases"], line


def test_layers_of_one_line_do_not_import_each_other(tmp_path: Path) -> None:
    copy = changed(tmp_path, "metrics.engine", "from phasewatch.scrape.http import Response")
    assert find_upward_imports(copy) == ["metrics.engine -> scrape.http"]


def test_every_module_lies_in_a_layer() -> None:
    known = {layer for line in LAYERS for layer in line}
    assert {module.partition(".")[0] for pair in list_imports(PACKAGE) for module in pair} - {""} == known


def test_no_packages_import_each_other_in_a_circle(tmp_path: Path) -> None:
    assert find_knot(find_arrows(PACKAGE)) == []
    copy = changed(tmp_path, "models.shape.layers", "from phasewatch.models.sources.hub import find_in_hub_cache")
    knot = find_knot(find_arrows(copy))
    assert knot[0] == knot[-1]
    assert {"models.shape", "models.sources"} <= set(knot)


def test_the_picture_in_the_docs_is_that_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert embed(page, render_graph(PACKAGE)) == page, "run `make graph`"


def test_no_backend_is_named_outside_its_folder() -> None:
    names = {backend.name for backend in BACKENDS}
    places = {
        (str(path.relative_to(PACKAGE)), node.value)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in {"backends", "demo"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert places == {
        ("models/costs.py", "ollama"),  # where a model's shape was read: a value of the label `source`
        ("recordings/format.py", "vllm"),  # what a header without `engine` stands for
    }


def test_every_package_is_on_the_page_and_every_module_that_it_names_is_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    tree = page.partition("    exporter/phasewatch/\n")[2].partition("\n\n")[0]
    for folder in sorted(path.parent for path in PACKAGE.rglob("__init__.py")):
        if folder != PACKAGE:
            assert f"{folder.name}/" in tree, folder.relative_to(PACKAGE)
    for name in re.findall(r"`([a-z_]+(?:/[a-z_.]+)+)`", page):
        path = name.removeprefix("exporter/phasewatch/")
        places = (ROOT / name, PACKAGE / path, (PACKAGE / path).with_suffix(".py"), PACKAGE / "backends" / f"{path}.py")
        assert any(place.exists() for place in places), name
