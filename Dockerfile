# The one image: every service of the deployment is this image with another command.
# Two stages, so that compilers, caches and the build backend stay out of what runs.

FROM python:3.11.14-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements-build.lock requirements-runtime.lock ./
RUN pip install --require-hashes --no-deps -r requirements-build.lock \
    && python -m venv /opt/eden \
    && /opt/eden/bin/pip install --require-hashes --no-deps -r requirements-runtime.lock
COPY pyproject.toml README.md LICENSE NOTICE topics.yaml ./
COPY schemas schemas
COPY processors processors
COPY eden_memory eden_memory
COPY examples/demo.jsonl examples/demo.changes.jsonl examples/demo.people.yaml examples/demo.expected.yaml examples/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/eden/bin/pip install --no-deps --no-index /wheels/*.whl

FROM python:3.11.14-slim-bookworm
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin eden
COPY --from=build /opt/eden /opt/eden
ENV PATH=/opt/eden/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 10001:10001
STOPSIGNAL SIGTERM
# Asks what `run` and `serve` answer where EDEN_HTTP_PORT is set; nothing else has a health to ask for.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=6 CMD ["python", "-c", \
    "import os, urllib.request as r; p = os.environ.get('EDEN_HTTP_PORT'); p and r.urlopen(f'http://127.0.0.1:{p}/livez', timeout=3)"]
ENTRYPOINT ["eden"]
CMD ["--help"]
