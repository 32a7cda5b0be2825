#!/usr/bin/env bash
# Points the released clients of LibreTranslate and DeepL at `nmt serve`, and compares what they get with `nmt generate`
# and `nmt translate-file`.
#
#   bash recipes/verify_clients.sh
#
# Trains two small models on the grammar of quickstart.sh, English-German and German-English; UPDATES=N trains each for N
# updates (default 400), which is enough to compare. The clients get an environment of their own. RUN=folder receives
# all files (default runs/clients).
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ $# = 0 ] || fail "verify_clients.sh takes no arguments, but was given: $*; leave them out"
run_dir=$(path_or "${RUN:-}" runs/clients)
corpus=$run_dir/corpus updates=${UPDATES:-400} environment=$run_dir/environment

# train SOURCE TARGET: trains a small model.
train() {
    local data=$run_dir/data-$1-$2 model=$run_dir/$1-$2
    unless_there "$data" nmt preprocess --source-lang "$1" --target-lang "$2" --train "$corpus/train" \
        --valid "$corpus/valid" --dest "$data" --vocab-size 1000
    unless_there "$model/average.safetensors" train_on_grammar "$data" "$model" --max-updates "$updates" \
        --save-updates "$((updates / 5))" --valid-updates "$updates"
}

# Waits for the address in the log of the server, and prints it.
address_of_server() {
    while ! grep -o 'http://[^;]*' "$run_dir/server.log"; do
        kill -0 "$server" 2> /dev/null || fail "the server has ended: $(cat "$run_dir/server.log")"
        sleep 0.2
    done
}

set_up_environment
mkdir -p "$run_dir"
# shellcheck disable=SC2046 # the lines are packages
own_environment "$environment" $(cat recipes/verify/clients.txt)
unless_there "$corpus" write_grammar_corpus "$corpus"
train en de
train de en
for pair in en-de de-en; do
    head -n 5 "$corpus/test.${pair%-*}" > "$run_dir/$pair.source"
    run nmt generate "$run_dir/$pair/average.safetensors" --precision fp32 --device cpu --n-best 3 --output-format jsonl \
        --input "$run_dir/$pair.source" --output "$run_dir/$pair.jsonl"
done
# A document with markup, and what nmt translate-file makes of it.
{
    echo '<html lang="en"><body>'
    sed 's|.*|<p><b>&</b></p>|' "$run_dir/en-de.source"
    echo '</body></html>'
} > "$run_dir/page.html"
run nmt translate-file "$run_dir/page.html" --model "$run_dir/en-de/average.safetensors" --precision fp32 --device cpu \
    --output "$run_dir/page.expected.html"
echo secret > "$run_dir/token"
printf 'artist\tMaler\n' > "$run_dir/terms.tsv"
: > "$run_dir/server.log"
nmt serve "$run_dir/en-de/average.safetensors" "$run_dir/de-en/average.safetensors" --precision fp32 --device cpu --port 0 \
    --api libretranslate --api deepl --token-file "$run_dir/token" \
    --glossary art="$run_dir/terms.tsv" 2> "$run_dir/server.log" &
server=$!
trap 'kill "$server"' EXIT
address=$(address_of_server)
for client in libretranslatepy libretranslate_aio deepl; do
    run "$environment/bin/python" "recipes/verify/client_$client.py" "$address" "$run_dir"
done
echo "All clients get the translations of nmt generate and nmt translate-file." >&2
