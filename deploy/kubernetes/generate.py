"""Writes monitoring/rules.yaml from alerts/rules: `make deploy`.

They are the very rules, as objects that a cluster takes: a PrometheusRule for each file of rules.
"""
# ruff: noqa: INP001  # a script beside the files it writes, no package

import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(__file__).parent / "monitoring"

_HEAD: Final = "# Written by `make deploy` from {source}. Change those instead.\n"

_RULES: Final = """\
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {name}
  labels: {{app.kubernetes.io/name: phasewatch, app.kubernetes.io/component: rules}}
spec:
{groups}"""


def rules() -> str:
    """All files of rules but a site's own, which is not of the repository: a PrometheusRule each.

    The text is kept as it is, with its comments, and not read and written anew.
    """
    files = sorted((ROOT / "alerts" / "rules").glob("phasewatch-*.yml"))
    objects = [_RULES.format(name=path.stem, groups=indent(path.read_text(encoding="utf-8"), "  ")) for path in files]
    return _HEAD.format(source="alerts/rules") + "".join(objects)


def files() -> Mapping[Path, str]:
    """The content of each file, by its path."""
    return {FOLDER / "rules.yaml": rules()}


def main() -> int:
    """Write them all."""
    for path, content in files().items():
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
