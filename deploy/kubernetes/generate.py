"""Writes monitoring/rules.yaml from alerts/rules: `make deploy`.

They are the same rules, as objects that a cluster takes: a PrometheusRule for each rule file.
"""
# ruff: noqa: INP001  # a script beside the manifests, no package

import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Final

ROOT: Final = Path(__file__).parents[2]

_HEAD: Final = "# Written by `make deploy` from alerts/rules. Change those instead.\n"

_RULES: Final = """\
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {name}
  labels: {{app.kubernetes.io/name: phasewatch, app.kubernetes.io/component: rules}}
spec:
{groups}"""


def render_files(root: Path) -> Mapping[Path, str]:
    """The content of each generated file, by its path below the root of the repository."""
    return {root / "deploy" / "kubernetes" / "monitoring" / "rules.yaml": _render_rules(root / "alerts" / "rules")}


def _render_rules(folder: Path) -> str:
    """A PrometheusRule for each rule file except a site's own. The text is kept as it is, with its comments."""
    paths = sorted(folder.glob("phasewatch-*.yml"))
    objects = [_RULES.format(name=path.stem, groups=indent(path.read_text(encoding="utf-8"), "  ")) for path in paths]
    return _HEAD + "".join(objects)


def main() -> int:
    """Write them all."""
    for path, content in render_files(ROOT).items():
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
