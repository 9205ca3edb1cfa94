#!/bin/sh
# Starts the image's service with the bus user, password and keys that `baton cluster prepare` wrote for it alone.
set -eu
file="/run/baton/env/${BATON_SERVICE}.env"
if [ ! -r "$file" ]; then
    echo "${BATON_SERVICE}: $file can't be read by user $(id -u). Mount the volume that the setup container" \
         "filled (\`docker compose up setup\`) at /run/baton." >&2
    exit 2
fi
set -a
. "$file"
set +a
rm -f "${BATON_INSTANCE_FILE:-}"
exec python -m "baton_${BATON_SERVICE}" "$@"
