#!/usr/bin/env bash
# Constituency parsing (paper §6.3, Table 4): from treebank files to EVALB's F1.
#
#   TREEBANK=folder bash recipes/wsj_parsing.sh [nmt train option...]
#   TREEBANK=folder UNLABELLED=file bash recipes/wsj_parsing.sh [nmt train option...]    # also self-training
#   TREEBANK=folder SILVER=file bash recipes/wsj_parsing.sh [nmt train option...]    # also semi-supervised
#
# TREEBANK is a folder with the WSJ part of the Penn Treebank (LDC99T42) and has the sections 00 to 24 as subfolders.
# Sections 02 to 21 are for training, 22 for validation, and 23 for the test. The treebank needs a licence and is not
# downloaded. TREEBANK may also hold a sample: NLTK's files wsj_0001.mrg to wsj_0199.mrg (0001-0169 for training,
# 0170-0184 for validation, 0185-0199 for the test), or train.mrg.gz and dev.mrg.gz.
#
# Training on a sample takes about 40 minutes on one core. Its settings differ from the paper where a few thousand trees
# are not enough. The sequences number the words. Marks of the spelling replace rare words. The model uses pre-norm. The
# result for a sentence is the best of 21 hypotheses that is a tree. With 3,501 training trees, F1 on 217 other trees was
# 80.0 after 13,800 updates.
#
# SILVER is a file of trees that another parser made, plain or .gz. (The paper used trees of BerkeleyParser and of a
# corpus of high confidence.) A second model is trained on them and on the treebank, whose sentences are used WEIGHT times
# as often (default 10). Without such trees, UNLABELLED is tokenised text with one sentence a line, plain or .gz, which the
# first model parses. This is self-training, and not what the paper did.
#
# On the full treebank, it trains for 30,000 updates and averages the last 20 checkpoints, which the paper does not state.
# It asks for a GPU; `--device cpu` trains on the CPU all the same, which takes weeks.
# RUN=folder receives all files. Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

bank=$(path_or "${TREEBANK:-}" '')
[ -d "$bank" ] ||
    fail "TREEBANK is '$bank', which is not a folder; set it to a folder with WSJ files (LDC99T42 or NLTK's sample)"
unlabelled=$(path_or "${UNLABELLED:-}" '')
[ -z "$unlabelled" ] || [ -e "$unlabelled" ] || fail "UNLABELLED is $unlabelled, which does not exist; check the path"
silver_trees=$(path_or "${SILVER:-}" '')
[ -z "$silver_trees" ] || [ -e "$silver_trees" ] || fail "SILVER is $silver_trees, which does not exist; check the path"
[ -z "$silver_trees" ] || [ -z "$unlabelled" ] || fail "SILVER and UNLABELLED are both set; leave out one of them"
run_dir=$(path_or "${RUN:-}" runs/parsing)
source_options=() sequence_options=()
if [ -d "$bank/02" ]; then
    train=(--train "$bank/0[2-9]/*" --train "$bank/1[0-9]/*" --train "$bank/2[01]/*")
    valid=(--valid "$bank/22/*") test=(--test "$bank/23/*")
    arch=transformer_parsing vocab_size=16000 batch_tokens=25000 warmup=4000 updates=30000 save_updates=500 averaged=20
    nbest=1 options=(--attention-dropout 0.1 --device cuda "$@")
else
    if [ -e "$bank/wsj_0001.mrg" ]; then
        train=(--train "$bank/wsj_00*.mrg" --train "$bank/wsj_01[0-6]*.mrg")
        valid=(--valid "$bank/wsj_017*.mrg" --valid "$bank/wsj_018[0-4].mrg")
        test=(--test "$bank/wsj_018[5-9].mrg" --test "$bank/wsj_019*.mrg")
    else
        train=(--train "$(file_of "$bank/train" mrg)") valid=(--valid "$(file_of "$bank/dev" mrg)") test=()
    fi
    arch=transformer_parsing_small vocab_size=16000 batch_tokens=1500 warmup=1000 updates=13800 save_updates=300 averaged=20
    source_options=(--numbers --rare-below 3) sequence_options=(--numbered)
    nbest=21 options=(--norm pre --attention-dropout 0.1 --optimizer muon --lr-scale 1.5 --batch-groups 4 "$@")
fi
vocab_size=${VOCAB_SIZE:-$vocab_size}

# learn FOLDER VOCABULARY CORPUS...: preprocesses and trains; writes data and model/average.safetensors to FOLDER.
learn() {
    local folder=$1 size=$2 trees=$run_dir/trees
    shift 2
    unless_there "$folder/data" nmt preprocess --source-lang words --target-lang trees "$@" --valid "$trees/valid" \
        --tokenizer none --vocab-size "$size" --symbols "$trees/symbols.txt" --max-length 1000 --dest "$folder/data"
    unless_there "$folder/model/average.safetensors" nmt train "$folder/data" --arch "$arch" --save-dir "$folder/model" \
        --batch-tokens "$batch_tokens" --warmup-updates "$warmup" --max-updates "$updates" \
        --save-updates "$save_updates" --average-last "$averaged" --valid-metric nll ${options[@]+"${options[@]}"}
}

# parse CHECKPOINT INPUT OUTPUT: parses with the paper's search: beam 21, alpha 0.3, at most input length + 300 pieces.
parse() {
    run nmt generate "$1" --input "$2" --output "$3" --no-protect --beam 21 --alpha 0.3 --max-length-offset 300 \
        --n-best "$nbest" --output-format jsonl
}

# evaluate FOLDER: parses and scores each split that has gold trees.
evaluate() {
    local split
    for split in valid ${test:+test}; do
        parse "$1/model/average.safetensors" "$run_dir/trees/$split.words" "$1/$split.out"
        run nmt score --metric evalb --reference "$run_dir/trees/$split.mrg" --hypothesis "$1/$split.out" |
            sed "s/^/$split: /"
    done
}

set_up_environment
mkdir -p "$run_dir"
unless_there "$run_dir/trees" nmt trees linearize "${train[@]}" "${valid[@]}" ${test[@]+"${test[@]}"} \
    ${source_options[@]+"${source_options[@]}"} ${sequence_options[@]+"${sequence_options[@]}"} --dest "$run_dir/trees"
learn "$run_dir/wsj" "$vocab_size" --train "$run_dir/trees/train"
evaluate "$run_dir/wsj"
[ -n "$unlabelled$silver_trees" ] || exit 0

silver=$run_dir/silver
mkdir -p "$silver"
if [ -n "$unlabelled" ]; then
    silver_trees=$silver/trees.mrg
    unless_there "$silver/words" nmt trees words --like "$run_dir/trees" --input "$unlabelled" --output "$silver/words"
    unless_there "$silver/out" parse "$run_dir/wsj/model/average.safetensors" "$silver/words" "$silver/out"
    unless_there "$silver_trees" nmt trees restore --words "$unlabelled" --sequences "$silver/out" --output "$silver_trees"
fi
unless_there "$silver/trees" nmt trees linearize --train "$silver_trees" \
    --like "$run_dir/trees" ${sequence_options[@]+"${sequence_options[@]}"} --dest "$silver/trees"
learn "$run_dir/semi" "${SEMI_VOCAB_SIZE:-$((2 * vocab_size))}" --train "$run_dir/trees/train" --weight "${WEIGHT:-10}" \
    --train "$silver/trees/train" --weight 1
evaluate "$run_dir/semi"
