"""The alert pack: sources, the rules generated from them, and Alertmanager's configuration. See docs/alerts.md."""
