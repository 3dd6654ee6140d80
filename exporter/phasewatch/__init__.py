"""PhaseWatch: a Prometheus exporter that tells prefill from decode on self-hosted LLM servers."""

__version__ = "0.1.0"
