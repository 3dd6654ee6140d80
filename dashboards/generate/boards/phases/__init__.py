"""Phases: prefill and decode side by side against the limits of the hardware."""
