"""A package imports only packages of lower layers, and the picture in docs/architecture.md is the one of the code."""

import ast
import re
from typing import Final

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
    read_modules,
    render_graph,
)
from tests.support.paths import ROOT

MODULES: Final = read_modules(PACKAGE)
IMPORTS: Final = list_imports(MODULES)


def imports_with(module: str, line: str) -> list[tuple[str, str]]:
    """The imports of the package if a module had one more line."""
    return list_imports(MODULES | {module: f"{MODULES[module]}\n{line}\n"})


def test_a_package_imports_only_packages_of_lower_layers() -> None:
    assert len(IMPORTS) > len(MODULES)
    assert find_upward_imports(IMPORTS) == []


def test_an_import_of_a_higher_layer_is_found_however_it_is_written() -> None:
    for module, line in (
        ("analysis.phases", "from phasewatch.web.routes import View"),
        ("analysis.phases", "from phasewatch.web import routes"),
        ("analysis.phases", "from phasewatch import web"),
        ("analysis.phases", "import phasewatch.web.routes"),
        ("analysis.phases", "def late():\n    from phasewatch.web.routes import View"),
        ("analysis.phases", "from ..web.routes import View"),
        ("analysis.phases", "from .. import web"),
        ("analysis", "from ..web import routes"),
        ("models.shape.layers", "from ...web.routes import View"),
    ):
        upward = find_upward_imports(imports_with(module, line))
        assert [arrow.partition(" -> ")[0] for arrow in upward] == [module], line


def test_an_import_within_a_layer_is_no_arrow_however_it_is_written() -> None:
    for line in ("from . import window", "from .window import EngineHistory", "from phasewatch.analysis import window"):
        imports = imports_with("analysis.phases", line)
        assert ("analysis.phases", "analysis.window") in imports, line
        assert find_upward_imports(imports) == [], line


def test_layers_of_one_line_do_not_import_each_other() -> None:
    upward = find_upward_imports(imports_with("metrics.engine", "from phasewatch.scrape.http import Response"))
    assert upward == ["metrics.engine -> scrape.http"]


def test_every_module_lies_in_a_layer() -> None:
    layers = {layer for line in LAYERS for layer in line}
    assert {module.partition(".")[0] for pair in IMPORTS for module in pair} - {""} == layers


def test_no_packages_import_each_other_in_a_circle() -> None:
    assert find_knot(find_arrows(IMPORTS)) == []
    line = "from phasewatch.models.sources.hub import find_in_hub_cache"
    knot = find_knot(find_arrows(imports_with("models.shape.layers", line)))
    assert knot[0] == knot[-1]
    assert {"models.shape", "models.sources"} <= set(knot)


def test_the_picture_in_the_docs_is_that_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert embed(page, render_graph(IMPORTS)) == page, "run `make graph`"


def test_no_backend_is_named_outside_its_folder() -> None:
    names = {backend.name for backend in BACKENDS}
    places = {
        (module, node.value)
        for module, source in MODULES.items()
        if module.partition(".")[0] not in {"backends", "demo"}
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert places == {
        ("models.costs", "ollama"),  # where a model's shape was read: a value of the label `source`
        ("models.costs", "llamacpp"),  # the same for its size
        ("recordings.format", "vllm"),  # what a header without `engine` stands for
    }


def test_every_package_is_on_the_page_and_every_module_that_it_names_is_there() -> None:
    page = PAGE.read_text(encoding="utf-8")
    tree = page.partition("    exporter/phasewatch/\n")[2].partition("\n\n")[0]
    for folder in sorted(path.parent for path in PACKAGE.rglob("__init__.py")):
        if folder != PACKAGE:
            assert f"{folder.name}/" in tree, f"docs/architecture.md does not show {folder.relative_to(PACKAGE)}"
    for name in re.findall(r"`([a-z_]+(?:/[a-z_.]+)+)`", page):
        path = name.removeprefix("exporter/phasewatch/")
        places = (ROOT / name, PACKAGE / path, (PACKAGE / path).with_suffix(".py"), PACKAGE / "backends" / f"{path}.py")
        assert any(place.exists() for place in places), name
