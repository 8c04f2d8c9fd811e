#!/usr/bin/env bash
# Trains the example adapters that `make serve` publishes, on the sample data beside this script.
set -euo pipefail
cd "$(dirname "$0")"
peltier=${PELTIER:-../.venv/bin/peltier}
mkdir -p adapters

train() { # task, data set, preset, learning rate, epochs
    "$peltier" train --task "$1" --preset "$3" --backbone minilm \
        --train "data/$2/train.jsonl.gz" --validation "data/$2/validation.jsonl.gz" --labels "data/$2/labels.json" \
        --epochs "$5" --learning-rate "$4" --max-length 64 --dtype bfloat16 \
        --directory "../runs/$1" --output "adapters/$1.safetensors"
}

train banking77 banking77 compacter 5e-3 4
train banking77-adamix banking77 adamix 2e-3 4
train clinc150 clinc150 unipelt-apl 2e-3 2
