"""The import graph of the package, as the rooms of docs/architecture.md: `python scripts/import_graph.py` prints it.

A room is a layer, or a package inside one; a layer may import only the layers below it. `make graph` writes the picture
into docs/architecture.md.
"""
# ruff: noqa: INP001, T201  # a script that prints

import ast
import graphlib
import sys
from collections.abc import Iterator
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


def list_imports(package: Path) -> Iterator[tuple[str, str]]:
    """Each module of a package with each module of it that it imports, in dotted names below the package."""
    modules = {_name_module(path, package): path for path in sorted(package.rglob("*.py"))}
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for imported in _list_imported(node):
                if imported == package.name or imported.startswith(f"{package.name}."):
                    name = imported.removeprefix(package.name).removeprefix(".")
                    # `from a import b` names a module where b is one, and a name in `a` elsewhere.
                    yield module, name if name in modules else name.rpartition(".")[0]


def _name_module(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def _list_imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def find_layer(module: str) -> str:
    """The layer of a module: the first part of its name."""
    return module.partition(".")[0]


def find_upward_imports(package: Path) -> list[str]:
    """Imports that do not go to a lower layer, as `module -> module`."""
    ranks = {layer: rank for rank, line in enumerate(LAYERS) for layer in line}
    return [
        f"{module} -> {imported}"
        for module, imported in list_imports(package)
        if (importer := find_layer(module)) != (layer := find_layer(imported))
        and layer
        and ranks[layer] <= ranks[importer]
    ]


def find_room(module: str, package: Path) -> str:
    """The room of a module: its layer, or the package of that layer that it lies in. The list of backends, which is the
    `__init__` of its layer, is a room of its own.
    """
    parts = module.split(".")
    if parts == ["backends"]:
        return "backends.BACKENDS"
    inner = parts[:2] if package.joinpath(*parts[:2]).is_dir() else parts[:1]
    return ".".join(inner)


def find_arrows(package: Path) -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second."""
    pairs = {(find_room(a, package), find_room(b, package)) for a, b in list_imports(package)}
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


def render_graph(package: Path) -> str:
    """A table of the layers, top to bottom: their rooms, and the layers that they import."""
    imports: dict[str, set[str]] = {}
    rooms: dict[str, set[str]] = {}
    for module, imported in list_imports(package):
        layer, target = find_layer(module), find_layer(imported)
        rooms.setdefault(layer, set()).add(find_room(module, package))
        if target not in {layer, ""}:
            imports.setdefault(layer, set()).add(target)
    order = [layer for line in LAYERS for layer in line]
    lines = ["| layer | rooms | imports |", "|---|---|---|"]
    for layer in order:
        inner = sorted(room.removeprefix(f"{layer}.") for room in rooms.get(layer, ()) if room != layer)
        below = [name for name in order if name in imports.get(layer, ())]
        lines.append(f"| `{layer}` | {' · '.join(inner)} | {' · '.join(below)} |")
    arrows = find_arrows(package)
    count = len({room for pair in arrows for room in pair})
    return "\n".join([*lines, "", f"{count} rooms joined by {len(arrows)} arrows, none of them back up.", ""])


def embed(page: str, graph: str) -> str:
    """The page with the graph between its two marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{graph}\n{_END}{after}"


def main() -> int:
    """Write the graph into the page; with --print, print it instead."""
    upward, knot = find_upward_imports(PACKAGE), find_knot(find_arrows(PACKAGE))
    sys.stderr.writelines(f"imports a layer that is not below its own: {line}\n" for line in upward)
    if knot:
        sys.stderr.write(f"packages that import each other in a circle: {' -> '.join(knot)}\n")
    if upward or knot:
        return 1
    if "--print" in sys.argv[1:]:
        print(render_graph(PACKAGE))
    else:
        PAGE.write_text(embed(PAGE.read_text(encoding="utf-8"), render_graph(PACKAGE)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
