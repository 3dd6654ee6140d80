"""Writes every rule file, and the table of thresholds in docs/alerts.md: `make alerts`.

Where the pack was exported to there are no docs, and only the rules are written.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from alerts.generate import alerts, effective, slo, thresholds
from alerts.generate.links import find_missing_runbooks
from phasewatch.base.errors import ConfigError

ROOT: Final = Path(__file__).parents[2]

_RECORDING_HEAD: Final = "# Written by `make alerts` from ../recording.yml. Change that file instead.\n"


def render_files(root: Path) -> Mapping[Path, str]:
    """The content of each generated file, by its path.

    Args:
        root: the folder with `alerts`, and in a checkout `docs`.

    Raises:
        ConfigError: something in a source is wrong; carries every problem of the first source with one.
        OSError: a source cannot be read.
    """
    folder, page, runbooks = root / "alerts", root / "docs" / "alerts.md", root / "docs" / "runbooks"
    values = thresholds.read_thresholds(folder / "thresholds.yml")
    objectives = slo.read_objectives(folder / "objectives.yml")
    sources = {subject: _read(folder / "alerts" / f"{subject}.yml") for subject in alerts.SUBJECTS}
    texts = {
        "alerts": alerts.render_rules(sources),
        "effective": effective.render_rules(values),
        "recording": _RECORDING_HEAD + _read(folder / "recording.yml"),
        "slo": slo.render_rules(objectives),
        "thresholds": thresholds.render_rules(values),
    }
    contents = {folder / "rules" / f"phasewatch-{name}.yml": text for name, text in texts.items()}
    handwritten = [*_load_rules(texts["alerts"]), *_load_rules(texts["recording"])]
    users = thresholds.group_users(handwritten)
    problems = list(thresholds.find_misuses(values, users))
    if runbooks.is_dir():
        problems += find_missing_runbooks(handwritten, runbooks)
    if problems:
        raise ConfigError(problems)
    if page.is_file():
        contents[page] = thresholds.replace_table(_read(page), values, users)
    return contents


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _load_rules(text: str) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(text)["groups"]:
        yield from group["rules"]


def main() -> int:
    """Write them all. Problems go to standard error, and the exit code is 1."""
    try:
        contents = render_files(ROOT)
    except ConfigError as error:
        sys.stderr.writelines(f"{problem}\n" for problem in error.problems)
        return 1
    except OSError as error:
        sys.stderr.write(f"{error.filename}: cannot be read: {error.strerror}\n")
        return 1
    for path, content in contents.items():
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
