# The image ghcr.io/phasewatch/phasewatch: the exporter in a virtual environment, and nothing that builds it.
#
#   docker build -t ghcr.io/phasewatch/phasewatch:0.1.0 .
#   docker run --rm --network host --read-only --cap-drop ALL ghcr.io/phasewatch/phasewatch:0.1.0 \
#     serve --web.listen-address=127.0.0.1:10061
#
# Without the second line it would listen on all addresses of the host, and ask nobody for a password.
#
# It needs no shell, no capability, no writable file system and no user of a certain number. `demo` and `devices --measure`
# write below /tmp: give them --tmpfs /tmp.

FROM python:3.13.16-slim-trixie AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /source
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir pip==26.3

# What the wheel is made of: the program, and the dashboards and rules that `phasewatch assets export` writes out.
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
COPY alerts alerts
COPY dashboards dashboards
RUN /venv/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

# auth: basic authentication of the exporter itself. nvidia: GPUs are found where the container is given their driver.
RUN /venv/bin/pip install --no-cache-dir --compile "phasewatch[auth,nvidia] @ file://$(echo /wheel/*.whl)" \
    && /venv/bin/pip uninstall --yes pip

FROM python:3.13.16-slim-trixie

LABEL org.opencontainers.image.title="PhaseWatch" \
      org.opencontainers.image.description="Prometheus exporter that tells prefill from decode on self-hosted LLM servers" \
      org.opencontainers.image.source="https://github.com/phasewatch/phasewatch" \
      org.opencontainers.image.documentation="https://github.com/phasewatch/phasewatch/blob/main/docs/compose.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"

COPY --from=build /venv /venv

# Inside a container loopback is the container's own, so all addresses are listened on; what is published decides who
# reaches it. HOME is where nothing is kept, for a user who has no home.
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PHASEWATCH_WEB_LISTEN_ADDRESS=:10061

USER 65532:65532
EXPOSE 10061

# With --web.config.file (TLS, basic authentication) it cannot ask: use another check, or --no-healthcheck.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["/venv/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:10061/-/ready', timeout=2)"]

ENTRYPOINT ["/venv/bin/phasewatch"]
CMD ["serve"]
