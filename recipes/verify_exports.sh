#!/usr/bin/env bash
# Trains a small model, exports it, and checks that other programs translate with it as they should. Each program is
# installed in an environment of its own.
#
#   bash recipes/verify_exports.sh [FORMAT...]
#
# FORMAT is argos, onnx or web; without one, all formats are checked. onnx needs node and npm, and web also Chromium.
# RUN=folder receives all files (default runs/verify-exports).
# Start the recipe again to repeat the checks with the same model and the same environments.
set -euo pipefail
. "$(dirname "$0")/common.sh"

formats=(argos onnx web)
run_dir=$(path_or "${RUN:-}" runs/verify-exports)
corpus=$run_dir/corpus data=$run_dir/data model=$run_dir/model/average.safetensors input=$run_dir/input.en

# same_lines NAME EXPECTED TRANSLATION: checks that two files have the same lines.
same_lines() {
    cmp "$2" "$3" || fail "$1 translates otherwise than expected; compare $2 and $3"
    echo "$1: all $(wc -l < "$2") lines are equal"
}

# Argos Translate against CTranslate2 with the text processing of nmt. The package brings the model that splits text into
# sentences.
verify_argos() {
    local folder=$run_dir/argos home=$run_dir/argos/home package=$run_dir/argos/model.argosmodel
    local python=$folder/environment/bin/python
    own_environment "$folder/environment" argostranslate==1.11.0 ctranslate2==4.8.5 minisbd==0.9.5 onnx==1.23.2 \
        onnxruntime==1.32.0 sacremoses==0.1.1 sentencepiece==0.2.3 spacy==3.8.18 stanza==1.10.1 torch==2.13.0
    run "$python" -I recipes/verify/sentence_model.py "$folder/en.onnx"
    run nmt export argos "$model" --output "$package" --sentence-model "$folder/en.onnx"
    rm -rf "$home"
    run env HOME="$home" XDG_DATA_HOME="$home/data" XDG_CONFIG_HOME="$home/config" XDG_CACHE_HOME="$home/cache" \
        ARGOS_PACKAGES_DIR="$home/packages" "$python" -I recipes/verify/argos.py "$package" \
        < "$input" > "$folder/translation.de"
    run python recipes/verify/argos_expected.py "$model" "$home/packages/nmt-en_de" < "$input" > "$folder/expected.de"
    same_lines argos "$folder/expected.de" "$folder/translation.de"
}

# ONNX Runtime in Python and in node, with graphs in 32 bits, against nmt.
verify_onnx() {
    local folder=$run_dir/onnx exported=$run_dir/onnx/exported
    own_environment "$folder/environment" optimum-onnx==0.1.0 optimum==2.1.0 onnx==1.23.2 onnxruntime==1.32.0 \
        sacremoses==0.1.1 sentencepiece==0.2.3 torch==2.13.0 transformers==4.57.6
    rm -rf "$exported"
    run nmt export onnx "$model" --output "$exported"
    translate_greedily "$folder/expected.de"
    for decoders in split merged; do
        run "$folder/environment/bin/python" -I recipes/verify/onnx_python.py "$exported" $decoders \
            < "$input" > "$folder/$decoders.de"
        same_lines "optimum ($decoders)" "$folder/expected.de" "$folder/$decoders.de"
    done
    cp recipes/verify/onnx_node.mjs "$folder"
    run npm install --silent --ignore-scripts --no-save --prefix "$folder" @huggingface/transformers@4.3.1 >&2
    run node "$folder/onnx_node.mjs" "$exported" < "$input" > "$folder/node.de"
    same_lines transformers.js "$folder/expected.de" "$folder/node.de"
}

# The page in Chromium, with the model in 8 bits, against nmt. Of 20 sentences, one may differ because of the 8 bits.
verify_web() {
    local folder=$run_dir/web page=$run_dir/web/page
    rm -rf "$page"
    run nmt export web "$model" --output "$page"
    run npm run --silent --prefix "$page" engine >&2
    translate_greedily "$folder/expected.de"
    head -n 20 "$input" | run python recipes/verify/web_page.py "$page" > "$folder/page.de"
    local same
    same=$(paste "$folder/page.de" <(head -n 20 "$folder/expected.de") | awk -F '\t' '$1 == $2' | wc -l)
    [ "$same" -ge 19 ] || fail "the page translates otherwise than nmt; compare $folder/page.de and $folder/expected.de"
    echo "page: $same of 20 lines are equal"
}

# translate_greedily FILE [OPTION...]: writes the translations of the input by nmt.
translate_greedily() {
    run nmt generate "$model" --beam 1 --precision fp32 --device cpu --input "$input" --output "$1" "${@:2}"
}

# choose_input: writes 200 sentences whose translations end by themselves. Others end at limits, which differ.
choose_input() {
    head -n 250 "$corpus/test.en" > "$input"
    translate_greedily "$run_dir/short.de"
    translate_greedily "$run_dir/long.de" --max-length-offset 100
    paste "$input" "$run_dir/short.de" "$run_dir/long.de" | awk -F '\t' '$2 == $3 && n++ < 200 { print $1 }' \
        > "$input.part"
    mv "$input.part" "$input"
}

chosen=("${@:-${formats[@]}}")
for format in "${chosen[@]}"; do
    declare -F "verify_$format" > /dev/null || fail "$format is not a format; give one or more of: ${formats[*]}"
done
set_up_environment
mkdir -p "$run_dir"
unless_there "$corpus" write_grammar_corpus "$corpus"
unless_there "$data" nmt preprocess --source-lang en --target-lang de --train "$corpus/train" --valid "$corpus/valid" \
    --test "$corpus/test" --dest "$data" --vocab-size 2000 --tokenizer none
unless_there "$model" train_on_grammar "$data" "$run_dir/model"
choose_input
for format in "${chosen[@]}"; do
    mkdir -p "$run_dir/$format"
    "verify_$format"
done
