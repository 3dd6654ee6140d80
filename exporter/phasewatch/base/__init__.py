"""Shared by all other packages: errors, units, logging, and arithmetic with unknown figures."""
