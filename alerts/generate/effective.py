"""The rules that choose a threshold, rules/phasewatch-effective.yml: the override in force for each target and model.

PromQL cannot combine every threshold with every target, since neither side of such a match is unique. So there is one
rule for each threshold, in a group of rules for each subject of alerts. Prometheus evaluates groups at the same time:
what a rule reads of another group is at most one evaluation old.

An override for everything is one without any label: `vector(1)` has none either. One with a misspelled label is for
nothing, and not for everything.
"""

from collections.abc import Iterable
from typing import Final

from alerts.generate.thresholds import Threshold, group_thresholds

_HEAD: Final = """\
# Written by `make alerts` from the names in thresholds.yml. There is nothing to change here.
#
# The threshold that is in force for each target (where model_name is empty) and each model on it: the most specific
# override, or the default.
groups:
  - name: phasewatch-effective-subjects
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

_GROUP: Final = """
  - name: phasewatch-effective-{group}
    rules:
"""

_RULE: Final = """\
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


def render_rules(thresholds: Iterable[Threshold]) -> str:
    """The text of a rule file, with one rule for each threshold."""
    return _HEAD + "".join(
        _GROUP.format(group=group) + "\n".join(_RULE.format(name=threshold.name) for threshold in members)
        for group, members in group_thresholds(thresholds).items()
    )
