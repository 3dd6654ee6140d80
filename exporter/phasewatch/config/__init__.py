"""The configuration: schema, resolution into settings, and the checks beyond single keys."""
