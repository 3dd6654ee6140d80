"""SLO: objectives, error budgets and burn rates, from vLLM's own histograms."""
