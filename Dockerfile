# bigsvm in a container: slim, not root, what is usual compiled, and a root file system that may be read-only.
#
#   docker build -t bigsvm .
#   docker run --rm --read-only -v "$PWD:/data" -v /fast/disk:/scratch bigsvm fit rows.zarr -o spam.model
#
# scripts/container.py goes through the same steps where there is no container engine.

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY scripts/building scripts/building
COPY bigsvm bigsvm
ENV BIGSVM_BUILD_CACHE=all
RUN python -m venv /opt/bigsvm && /opt/bigsvm/bin/pip install --no-cache-dir .

FROM python:3.12-slim
COPY --from=build /opt/bigsvm /opt/bigsvm
# Both are to be mounted; what is made here is for those who do not, and tells which user must be able to write.
RUN install -d -o 10001 -g 10001 /data /scratch
# All that is written without being named goes to /scratch: working copies, and what is compiled anew.
ENV PATH=/opt/bigsvm/bin:/usr/local/bin:/usr/bin:/bin
ENV HOME=/scratch
ENV TMPDIR=/scratch
ENV BIGSVM_SCRATCH=/scratch
ENV BIGSVM_CACHE=/scratch
VOLUME /scratch
USER 10001:10001
WORKDIR /data
ENTRYPOINT ["bigsvm"]
CMD ["--help"]
