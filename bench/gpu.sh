#!/usr/bin/env bash
# The engine on one GPU, in under five minutes: are its tokens right, and how fast is it.
# Needs the model (`baton models pull smollm2-135m`, or --model FOLDER) and a torch built for CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -m bench.gpu "$@"
