# One image for every role; the role is the argument:
#
#   docker build -t headway .                                            # CPU
#   docker build -t headway:cuda --build-arg DEVICE=cuda .               # GPU: torch brings its own CUDA
#   docker run headway queue        docker run --gpus all headway:cuda worker
#
# It runs as any user ID and with a read-only root: whatever is written goes to the volume /cache or to /tmp.

ARG PYTHON=3.12
# cpu or cuda
ARG DEVICE=cpu

FROM python:${PYTHON}-slim AS build
ARG DEVICE
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# For the attention kernel of the CPU, which the image brings along: it has no compiler itself.
RUN if [ "$DEVICE" = cpu ]; then apt-get update && apt-get install -y --no-install-recommends g++; fi
RUN python -m venv /opt/headway
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY service service
# PyPI's torch is the CUDA build; the CPU build, a tenth of its size, has an index of its own.
RUN if [ "$DEVICE" = cpu ]; then export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu; fi \
 && /opt/headway/bin/pip install -c constraints.txt '.[engine,cluster]'
RUN if [ "$DEVICE" = cpu ]; then /opt/headway/bin/python -m headway.engine.native.build; fi

FROM python:${PYTHON}-slim
COPY --from=build /opt/headway /opt/headway
ENV PATH=/opt/headway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/cache \
    HF_HOME=/cache/huggingface \
    TORCHINDUCTOR_CACHE_DIR=/cache/inductor \
    TRITON_CACHE_DIR=/cache/triton \
    HEADWAY_METRICS_LISTEN=:9464
RUN install -d -m 1777 /cache
VOLUME /cache
USER 65532:0
EXPOSE 9464
ENTRYPOINT ["headway"]
CMD ["--help"]
