"""`python -m dashboards.generate` writes every dashboard."""

from dashboards.generate.output import main

main()
