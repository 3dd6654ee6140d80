"""The import graph of the package, as the rooms of docs/architecture.md.

A room is a layer, or a package inside one; a layer may import only the layers below it. `make graph` writes the picture
into docs/architecture.md; `python scripts/import_graph.py --print` only prints it.
"""
# ruff: noqa: INP001, T201  # a script that prints

import ast
import functools
import graphlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "exporter" / "phasewatch"
PAGE: Final = ROOT / "docs" / "architecture.md"

LAYERS: Final = (
    ("__main__",),
    ("cli",),
    ("demo",),
    ("app",),
    ("web", "recordings"),
    ("backends",),
    ("scrape", "metrics"),
    ("snapshot",),
    ("analysis",),
    ("config",),
    ("models",),
    ("hardware", "assets"),
    ("base",),
)
"""Top to bottom. A layer imports only those below it; what shares a line does not import each other."""

_BEGIN: Final = "<!-- import graph: `make graph` -->\n"
_END: Final = "<!-- end of import graph -->"


def read_modules(package: Path) -> dict[str, str]:
    """The source of each module of a package by its dotted name below the package, which is empty for its own."""
    return {_name_module(path, package): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}


def _name_module(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def list_imports(modules: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each module with each other one that it imports, by their names in `modules`."""
    packages = {module.rpartition(".")[0] for module in modules} | {""}
    imports = []
    for module, source in modules.items():
        inside = module if module in packages else module.rpartition(".")[0]
        names = (name for statement in _find_statements(source) for name in _list_imported(statement, inside))
        # `from a import b` names a module where b is one, and a name in `a` elsewhere.
        imports += [(module, name if name in modules else name.rpartition(".")[0]) for name in names]
    return imports


@functools.cache
def _find_statements(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom))


def _list_imported(statement: ast.Import | ast.ImportFrom, inside: str) -> Iterator[str]:
    """Names below PACKAGE that a statement in the package `inside` imports."""
    names = [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        level = statement.level
        parents = [PACKAGE.name, *filter(None, inside.split("."))][: -level + 1 or None] if level else []
        names = [".".join([*parents, *filter(None, [statement.module]), name]) for name in names]
    yield from (name.removeprefix(PACKAGE.name)[1:] for name in names if f"{name}.".startswith(f"{PACKAGE.name}."))


def find_layer(module: str) -> str:
    """The layer of a module: the first part of its name."""
    return module.partition(".")[0]


def find_upward_imports(imports: Iterable[tuple[str, str]]) -> list[str]:
    """Imports that do not go to a lower layer, as `module -> module`."""
    ranks = {layer: rank for rank, line in enumerate(LAYERS) for layer in line}
    return [
        f"{module} -> {imported}"
        for module, imported in imports
        if (importer := find_layer(module)) != (layer := find_layer(imported))
        and layer
        and ranks[layer] <= ranks[importer]
    ]


def find_room(module: str) -> str:
    """The room of a module: its layer, or the package of that layer that it lies in, with all below it. The list of
    backends, which is the `__init__` of its layer, is a room of its own.
    """
    parts = module.split(".")
    if parts == ["backends"]:
        return "backends.BACKENDS"
    inner = parts[:2] if PACKAGE.joinpath(*parts[:2]).is_dir() else parts[:1]
    return ".".join(inner)


def find_arrows(imports: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second."""
    pairs = {(find_room(module), find_room(imported)) for module, imported in imports}
    return {(room, imported) for room, imported in pairs if imported and room != imported}


def find_knot(arrows: set[tuple[str, str]]) -> list[str]:
    """Rooms each of which imports the next, the first and the last being the same; empty if there is no such knot."""
    imports: dict[str, set[str]] = {}
    for room, imported in arrows:
        imports.setdefault(room, set()).add(imported)
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        knot: list[str] = error.args[1]
        return knot[::-1]
    return []


def render_graph(imports: Sequence[tuple[str, str]]) -> str:
    """A table of the layers, top to bottom: their rooms, and the layers that they import."""
    below: dict[str, set[str]] = {}
    rooms: dict[str, set[str]] = {}
    for module, imported in imports:
        layer, target = find_layer(module), find_layer(imported)
        rooms.setdefault(layer, set()).add(find_room(module))
        if target not in {layer, ""}:
            below.setdefault(layer, set()).add(target)
    order = [layer for line in LAYERS for layer in line]
    lines = ["| layer | rooms | imports |", "|---|---|---|"]
    for layer in order:
        inner = sorted(room.removeprefix(f"{layer}.") for room in rooms.get(layer, ()) if room != layer)
        imported_layers = [name for name in order if name in below.get(layer, ())]
        lines.append(f"| `{layer}` | {' · '.join(inner)} | {' · '.join(imported_layers)} |")
    arrows = find_arrows(imports)
    count = len({room for pair in arrows for room in pair})
    return "\n".join([*lines, "", f"{count} rooms joined by {len(arrows)} arrows, none of them back up.", ""])


def embed(page: str, graph: str) -> str:
    """The page with the graph between its two marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{graph}\n{_END}{after}"


def main() -> int:
    """Write the graph into the page; with --print, print it instead."""
    imports = list_imports(read_modules(PACKAGE))
    upward, knot = find_upward_imports(imports), find_knot(find_arrows(imports))
    sys.stderr.writelines(f"imports a layer that is not below its own: {line}\n" for line in upward)
    if knot:
        sys.stderr.write(f"packages that import each other in a circle: {' -> '.join(knot)}\n")
    if upward or knot:
        return 1
    if "--print" in sys.argv[1:]:
        print(render_graph(imports))
    else:
        PAGE.write_text(embed(PAGE.read_text(encoding="utf-8"), render_graph(imports)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
