"""All advice for a vLLM."""

from typing import Final

from phasewatch.analysis.advice.handbook import Handbook
from phasewatch.backends.vllm.complaint_advice import SLOW_FIRST_TOKEN, SLOW_STREAM
from phasewatch.backends.vllm.state_advice import ADVICE, ASLEEP

VLLM_HANDBOOK: Final = Handbook(ADVICE, SLOW_STREAM, SLOW_FIRST_TOKEN, ASLEEP)
