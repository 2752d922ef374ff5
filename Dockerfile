# syntax=docker/dockerfile:1
# Two images from one wheel, with the exact versions of constraints.txt:
#   docker build --target operator -t tailrace-operator:0.1.0 .
#   docker build --target spark    -t tailrace-spark:0.1.0 .
# Nothing in here is for one architecture: with --platform linux/amd64,linux/arm64 each gets its own wheels and JRE.
# Both run as user 185 and write nothing outside mounted folders (run folder, /tmp), so the root may be read-only.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS base
# The JVM and PostgreSQL's clients look the user up: a number alone has no home and no name.
RUN groupadd --gid 185 tailrace \
 && useradd --uid 185 --gid 185 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin tailrace
ENV PATH=/opt/tailrace/bin:$PATH LANG=C.UTF-8 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
RUN python3.11 -m venv /opt/tailrace
WORKDIR /build
COPY constraints.txt ./

# A stage of their own: what else changes in pyproject.toml does not have all packages installed again.
FROM base AS requirements
COPY pyproject.toml tools/requirements.py ./
RUN python3.11 requirements.py operator console > operator.txt \
 && python3.11 requirements.py spark postgresql mysql bigquery snowflake lineage > spark.txt

FROM base AS wheel
RUN pip install -q -c constraints.txt setuptools
COPY pyproject.toml README.md LICENSE ./
COPY spark_app spark_app
COPY operator operator
RUN pip wheel -q --no-deps --no-build-isolation --wheel-dir /wheel .

FROM base AS operator
# What the control plane imports (tools/operator-imports.toml holds it to that), and the console's web server: no Spark,
# no lake libraries.
COPY --from=requirements /build/operator.txt ./
RUN pip install -q -c constraints.txt -r operator.txt && python3.11 -m compileall -q -j 0 /opt/tailrace/lib
COPY --from=wheel /wheel /build/wheel
RUN pip install -q --no-deps wheel/*.whl && python3.11 -m compileall -q /opt/tailrace/lib/python3.11/site-packages/tailrace*
WORKDIR /tmp
USER 185:185
ENTRYPOINT ["tailrace-operator"]

FROM base AS python
RUN command -v java && command -v tini || { apt-get update -q \
 && apt-get install -qy --no-install-recommends openjdk-17-jre-headless tini && rm -rf /var/lib/apt/lists/*; }
COPY --from=requirements /build/spark.txt ./
RUN pip install -q -c constraints.txt -r spark.txt \
 # The root is read-only when these run: a module that is not compiled now is compiled again by every Python worker.
 && python3.11 -m compileall -q -j 0 /opt/tailrace/lib

# Spark's jars of the lake formats, object storage and catalogs. A build may bring them along in place of this stage,
# with --build-context jars=FOLDER.
FROM python AS jars-fetched
COPY tools/bootstrap.py tools/maven.py tools/mysql_packages.py tools/servers.py tools/
COPY tools/cluster tools/cluster
COPY spark_app/tailrace/__init__.py spark_app/tailrace/
COPY spark_app/tailrace/errors/__init__.py spark_app/tailrace/errors/
COPY spark_app/tailrace/spark/__init__.py spark_app/tailrace/spark/artifacts.py spark_app/tailrace/spark/
RUN ln -s /opt/tailrace .venv && TAILRACE_CACHE=/jars python3.11 tools/bootstrap.py jars

FROM python AS spark
COPY --from=jars-fetched /jars /opt/tailrace/cache
COPY --from=wheel /wheel /build/wheel
RUN pip install -q --no-deps wheel/*.whl && python3.11 -m compileall -q /opt/tailrace/lib/python3.11/site-packages/tailrace
COPY --chmod=755 tools/cluster/entrypoint.sh /opt/tailrace/bin/entrypoint
ENV PYTHONDONTWRITEBYTECODE=1 TAILRACE_CACHE=/opt/tailrace/cache SPARK_HOME=/opt/tailrace/lib/python3.11/site-packages/pyspark
RUN python3.11 -m tailrace.spark.class_archive
WORKDIR /tmp
USER 185:185
ENTRYPOINT ["entrypoint"]
CMD ["tailrace", "--help"]
