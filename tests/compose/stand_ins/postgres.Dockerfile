# In place of the official image, where no registry is in reach: Debian's PostgreSQL, started as that image does.
FROM python:3.11-slim-bookworm
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends postgresql-15 \
 && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
COPY --chmod=0755 postgres-entrypoint.sh /usr/local/bin/
STOPSIGNAL SIGINT
ENTRYPOINT ["postgres-entrypoint.sh"]
