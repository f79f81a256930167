# The command decima, and its service for Spark:
#
#   docker build -t decima . && docker run --rm decima
#   docker build -t decima-serve --target serve . && docker run -p 7733:7733 -v decima:/home/decima/.decima decima-serve
FROM python:3.12-slim AS base
WORKDIR /src
COPY . .
# The default build of PyTorch supports GPUs, and is many times larger than the build for CPUs.
RUN version="$(sed -n 's/^torch==//p' constraints.txt)" \
    && pip install --no-cache-dir "torch==$version" --index-url https://download.pytorch.org/whl/cpu \
    && pip install --no-cache-dir -c constraints.txt '.[serve]' \
    && useradd --create-home --uid 1000 decima \
    && install -d -o decima /home/decima/.decima
WORKDIR /home/decima
USER 1000
ENV NUMBA_CACHE_DIR=/home/decima/numba

FROM base AS serve
EXPOSE 7733
ENTRYPOINT ["decima", "serve", "--host", "0.0.0.0", "--json-logs"]

FROM base
ENTRYPOINT ["decima"]
CMD ["compare"]
