"""Writes rules/phasewatch-effective.yml: which override of each threshold is in force for which target and model.

PromQL cannot combine every threshold with every target by itself, since neither side of such a match is unique. So
there is one rule for each threshold of rules/phasewatch-thresholds.yml.

An override for everything is one without any label: `vector(1)` has none either. One with a label that is misspelled is
for nothing, and not for everything.
"""
# ruff: noqa: INP001  # a script beside the files it writes, no package

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

FOLDER: Final = Path(__file__).parent / "rules"
THRESHOLDS: Final = FOLDER / "phasewatch-thresholds.yml"
RULES: Final = FOLDER / "phasewatch-effective.yml"
PREFIX: Final = "phasewatch_threshold:"

_HEAD: Final = """\
# Written by `make alerts` from the names in phasewatch-thresholds.yml. There is nothing to change here.
#
# The threshold that is in force for each target (where model_name is empty) and each model on it: the most specific
# override, or the default.
groups:
  - name: phasewatch-effective-thresholds
    rules:
      # What a threshold can be for. A missed scrape does not show here, or every alert of the target would begin anew.
      - record: target_model:phasewatch_subject:group
        expr: |2
            group by (target) (last_over_time(llm_target_up[5m]))
          or
            group by (target, model_name) (last_over_time(llm_saturation_state[5m]))
          or
            group by (target, model_name) (last_over_time(llm_requests_running[5m]))
          or
            group by (target, model_name) (last_over_time(llm_model_loaded[5m]))
"""

_RULE: Final = """
      - record: target_model:phasewatch_threshold:effective
        labels: {{threshold: {name}}}
        expr: |2
            max by (target, model_name) (phasewatch_threshold_override:{name}{{target!="", model_name!=""}})
          or
              target_model:phasewatch_subject:group
            * on (model_name) group_left ()
              max by (model_name) (phasewatch_threshold_override:{name}{{target="", model_name!=""}})
          or
              target_model:phasewatch_subject:group
            * on (target) group_left ()
              max by (target) (phasewatch_threshold_override:{name}{{target!="", model_name=""}})
          or
              target_model:phasewatch_subject:group
            * on () group_left ()
              (
                  max(phasewatch_threshold_override:{name} and vector(1))
                or
                  max(phasewatch_threshold:{name})
              )
"""


def threshold_names(path: Path) -> list[str]:
    """The thresholds that a rule file records, in its order."""
    rules = [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
    return [rule["record"].removeprefix(PREFIX) for rule in rules]


def rules_of(names: Sequence[str]) -> str:
    """The text of a rule file."""
    return _HEAD + "".join(_RULE.format(name=name) for name in names)


def main() -> int:
    """Write the rules."""
    RULES.write_text(rules_of(threshold_names(THRESHOLDS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
