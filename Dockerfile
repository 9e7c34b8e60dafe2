FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/sizing
WORKDIR /source
# The packages change seldom and the service often: in this order, a new service reuses the layer of the packages.
COPY requirements.lock .
RUN /opt/sizing/bin/pip install --require-hashes -r requirements.lock
COPY . .
RUN /opt/sizing/bin/pip install --no-deps --no-build-isolation .

FROM python:3.13-slim
# A numeric id, so that an orchestrator can see that it is not root.
RUN useradd --uid 10001 --user-group --create-home sizing \
    && install --directory --owner sizing --group sizing /data
COPY --from=build /opt/sizing /opt/sizing
ENV PATH=/opt/sizing/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SIZING_HOST=0.0.0.0 \
    SIZING_PORT=8000 \
    SIZING_DATABASE_URL=sqlite:////data/sizing.db
USER 10001:10001
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"SIZING_PORT\"]}/health/ready', timeout=2)"]
CMD ["sizing", "serve"]
