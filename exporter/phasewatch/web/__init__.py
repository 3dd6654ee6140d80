"""The web side: routes, the landing page, TLS and authentication."""
