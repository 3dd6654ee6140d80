"""`python -m dashboards.generate` writes every dashboard."""

from dashboards.generate.output import write_files

write_files()
