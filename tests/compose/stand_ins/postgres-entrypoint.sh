#!/bin/sh
# The part of the official image's start that Baton uses: first user and database, password from a file.
set -eu
password=$(cat "$POSTGRES_PASSWORD_FILE")
install -d -m 0700 -o postgres -g postgres "$PGDATA" /run/postgresql
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf '%s' "$password" > /run/postgresql/first
    chown postgres /run/postgresql/first
    as_postgres initdb --username="$POSTGRES_USER" --pwfile=/run/postgresql/first --auth=scram-sha-256 --no-sync
    rm /run/postgresql/first
    echo "CREATE DATABASE \"$POSTGRES_DB\";" | as_postgres postgres --single -j -D "$PGDATA" postgres > /dev/null
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups \
    postgres -D "$PGDATA" -p "${PGPORT:-5432}" -c listen_addresses=127.0.0.1
