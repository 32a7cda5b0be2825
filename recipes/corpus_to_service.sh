#!/usr/bin/env bash
# Makes a small model for nmt serve from a raw parallel corpus. It cleans the corpus, trains a teacher, filters the
# teacher's translations, trains a fast student on them, exports it with 8-bit integers, and compares the models. The
# student begins with the teacher's encoder and two of its decoder layers. It prints the command that starts the service.
#
#   bash recipes/corpus_to_service.sh SOURCE_LANG TARGET_LANG CORPUS|SOURCE_FOLDER TARGET_FOLDER [--hours H]
#       [--teacher MODEL] [--more TEXT] [-- nmt train option...]
#
# CORPUS is the PREFIX of the files CORPUS.en and so on, or a corpus file such as memory.tmx. Two folders of documents and
# their translations may stand in its place. nmt align then makes the corpus of those that it can align; pairs with a score
# below 0.5 are not used, and the page aligned.html shows all.
#
# The teacher and the student train for H hours each (default 1), and the backward model for H/4. Options after -- go to all
# three trainings. With --teacher, MODEL takes the place of the teacher, and also that of the backward model if it has
# several languages; the student then has a vocabulary of its own and random weights at the beginning. TEXT is more text in
# the source language for the teacher to translate.
#
#   VALID, TEST        a validation and a test set, given like CORPUS; without them, HELD_OUT pairs (default 1000) for each
#                      are split off the end of the cleaned corpus. Text that is nearly in them is not used for training
#   VOCAB_SIZE=N       the vocabulary size (default 8000)
#   TOKENIZER=moses    tokenises with Moses and normalises punctuation; otherwise the models are trained on raw text
#   LICENCE=text       the licence in the model card
#   RUN=folder         receives all files, with the model card README.md and the page index.html
#
# Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage="usage: corpus_to_service.sh SOURCE_LANG TARGET_LANG CORPUS|SOURCE_FOLDER TARGET_FOLDER [--hours H] "
usage+="[--teacher MODEL] [--more TEXT] [-- nmt train option...]"
[ $# -ge 3 ] || fail "give two languages and the prefix of a corpus; $usage"
source=$1 target=$2 corpus=$(path_or "$3" '') given='' more='' documents=() scored=()
if [ -d "$corpus" ]; then
    documents=("$corpus" "$(path_or "${4:-}" '')")
    [ -d "${documents[1]}" ] || fail "$3 is a folder, but '${4:-}' is none; give two folders of documents; $usage"
    shift
fi
shift 3
arguments=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
        --teacher | --more)
            [ -e "$(path_or "${2:-}" .)" ] && [ -n "${2:-}" ] || fail "$1 ${2:-} does not exist; $usage"
            if [ "$1" = --teacher ]; then given=$(path_or "$2" ''); else more=$(path_or "$2" ''); fi
            shift 2
            ;;
        *)
            arguments+=("$1")
            shift
            ;;
    esac
done
parse_hours "$usage" ${arguments[@]+"${arguments[@]}"} "$@"
run_dir=$(path_or "${RUN:-}" runs/corpus-to-service)
valid=$(path_or "${VALID:-}" "$run_dir/valid") test=$(path_or "${TEST:-}" "$run_dir/test")
held_out=${HELD_OUT:-1000}
whole_or_fail HELD_OUT "$held_out"
languages=(--source-lang "$source" --target-lang "$target")
case " $source $target" in
    *" az"* | *" tr"* | *" tur"*) capitals=() ;; # where i has two capitals, nmt cannot lower them
    *) capitals=(--lower-capitals) ;;
esac

choose_tokenization none

# stage NAME FILE COMMAND...: runs a stage that makes FILE, unless FILE exists, and notes how long it took.
stage() {
    local name=$1 file=$2 started=$SECONDS
    shift 2
    unless_there "$file" "$@"
    grep -qs "^$name	" "$run_dir/stages.tsv" || printf '%s\t%s\n' "$name" $((SECONDS - started)) >> "$run_dir/stages.tsv"
}
# align_documents SOURCE TARGET: writes the pairs of all documents that can be aligned.
align_documents() {
    run nmt align "$@" "${languages[@]}" --output "$corpus" --page "$run_dir/aligned.html" || [ -e "$corpus" ]
}
# split_off [SETTING...]: writes rest, and valid and test if they are not given, from the cleaned corpus. The settings
# are for the record of unless_there.
split_off() {
    local lang pairs trained
    pairs=$(wc -l < "$run_dir/clean.$source")
    trained=$pairs
    [ -n "${TEST:-}" ] || trained=$((trained - held_out))
    [ -n "${VALID:-}" ] || trained=$((trained - held_out))
    [ "$trained" -gt 0 ] || fail "the cleaned corpus has only $((pairs)) pairs; lower HELD_OUT, which is $held_out"
    for lang in "$target" "$source"; do # the source is written last, because its file says that this stage is done
        [ -n "${TEST:-}" ] || tail -n "$held_out" "$run_dir/clean.$lang" > "$test.$lang"
        [ -n "${VALID:-}" ] ||
            sed -n "$((trained + 1)),$((trained + held_out))p" "$run_dir/clean.$lang" > "$valid.$lang"
        head -n "$trained" "$run_dir/clean.$lang" > "$run_dir/rest.$lang.part"
        mv "$run_dir/rest.$lang.part" "$run_dir/rest.$lang"
    done
}
# train_model NAME SHARE OPTION...: trains for this share of the hours, on NAME-data. A finished training is not repeated.
train_model() {
    local name=$1 minutes
    minutes=$(awk -v h="$hours" -v share="$2" 'BEGIN { print 60 * h * share }')
    shift 2
    stage "train $name" "$run_dir/$name/average.safetensors" nmt train "$run_dir/$name-data" --save-dir "$run_dir/$name" \
        --minutes "$minutes" ${options[@]+"${options[@]}"} "$@"
}
# collect [SETTING...]: writes the text that the teacher translates.
collect() {
    {
        cat "$run_dir/train.$source"
        [ -z "$more" ] || python recipes/lines.py "$more"
    } > "$run_dir/distilled.$source.part"
    mv "$run_dir/distilled.$source.part" "$run_dir/distilled.$source"
}
# link NAME: writes the word alignments that the teacher finds in the pairs NAME.
link() {
    run nmt rescore "$teacher" "${languages[@]}" --source "$run_dir/$1.$source" --target "$run_dir/$1.$target" --alignments \
        --output "$run_dir/$1.rescored"
    sed 's/.*||| *//' "$run_dir/$1.rescored" > "$run_dir/$1.links.part"
    mv "$run_dir/$1.links.part" "$run_dir/$1.links"
}
# translate NAME MODEL OPTION...: translates the test set and notes sentences a second on one core.
translate() {
    local name=$1 model=$2
    shift 2
    run nmt generate "$model" "${languages[@]}" --input "$test_source" --output "$run_dir/$name.out" "$@"
    OMP_NUM_THREADS=1 run python recipes/measure/benchmark.py generate --checkpoint "$model" "${languages[@]}" \
        --input "$test_source" --lines "$(text_of "$test" "$source" | wc -l)" --device cpu --repeats 3 --json "$@" \
        > "$run_dir/$name.speed"
}
evaluate() {
    local test_source test_target
    test_source=$(file_of "$test" "$source") test_target=$(file_of "$test" "$target")
    translate teacher "$teacher" --beam 4
    translate student "$student" --beam 1
    run nmt generate "$student" --input "$test_source" --output "$run_dir/int8.out" --beam 1 --engine ctranslate2 \
        --compute-type int8
    python recipes/measure/peer_ctranslate2.py "$run_dir/int8" "$test_source" --type int8 --beam 1 \
        --output "$run_dir/int8.again" > "$run_dir/int8.speed"
    run nmt score --reference "$test_target" --target-lang "$target" --metric bleu --metric chrf --bootstrap 1000 \
        --hypothesis "$run_dir/teacher.out" --hypothesis "$run_dir/student.out" --hypothesis "$run_dir/int8.out" \
        > "$run_dir/scores.part"
    mv "$run_dir/scores.part" "$run_dir/scores"
}
measure_robustness() {
    RUN=$run_dir/typed ENVIRONMENT=active bash recipes/measure/robustness.sh "$student" "$(file_of "$test" "$source")" \
        "$(file_of "$test" "$target")" "$target" > "$run_dir/robustness.part"
    mv "$run_dir/robustness.part" "$run_dir/robustness"
}

set_up_environment
for name in valid test; do plain_text "$name" "$source" "$target"; done
mkdir -p "$run_dir"
teacher=$run_dir/teacher/average.safetensors backward=$run_dir/backward/average.safetensors
student=$run_dir/student/average.safetensors
excluded=(--exclude "$valid" --exclude "$test") given_sets=()
[ -z "${VALID:-}" ] || given_sets+=(--exclude "$valid")
[ -z "${TEST:-}" ] || given_sets+=(--exclude "$test")

if [ ${#documents[@]} -gt 0 ]; then
    corpus=$run_dir/aligned.tsv scored=(--least-score 0.5)
    [ ! -e "$corpus.made-from" ] ||
        changed=$(find "${documents[@]}" -type f -newer "$corpus.made-from" -print -quit)
    [ -z "${changed:-}" ] ||
        fail "$changed has changed since $corpus was made from it; set RUN to another folder, or delete $corpus and" \
            "what was made from it"
    stage align "$corpus" align_documents "${documents[@]}"
fi
stage clean "$run_dir/clean.$source" nmt clean "${languages[@]}" --train "$corpus" --dest "$run_dir/clean" \
    --page "$run_dir/clean.html" ${scored[@]+"${scored[@]}"} ${given_sets[@]+"${given_sets[@]}"}
stage split "$run_dir/rest.$source" split_off HELD_OUT="$held_out" VALID="$valid" TEST="$test"
stage exclude "$run_dir/train.$source" nmt clean "${languages[@]}" --train "$run_dir/rest" --dest "$run_dir/train" \
    "${excluded[@]}"
trainings=()
if [ -n "$given" ]; then
    unless_there "$teacher" ln -sf "$given" "$teacher"
else
    stage "preprocess teacher" "$run_dir/teacher-data" nmt preprocess "${languages[@]}" --train "$run_dir/train" \
        --valid "$valid" --dest "$run_dir/teacher-data" --vocab-size "${VOCAB_SIZE:-8000}" \
        ${capitals[@]+"${capitals[@]}"} "${tokenization[@]}"
    train_model teacher 1
    trainings+=("$run_dir/teacher")
fi
if [ -n "$given" ] && ! nmt info "$given" | grep -q '^languages .*->'; then
    unless_there "$backward" ln -sf "$given" "$backward"
else
    stage "preprocess backward" "$run_dir/backward-data" nmt preprocess --source-lang "$target" --target-lang "$source" \
        --train "$run_dir/train" --valid "$valid" --dest "$run_dir/backward-data" --vocab-size "${VOCAB_SIZE:-8000}" \
        ${capitals[@]+"${capitals[@]}"} "${tokenization[@]}"
    train_model backward 0.25
    trainings+=("$run_dir/backward")
fi
stage collect "$run_dir/distilled.$source" collect MORE="$more"
stage distil "$run_dir/distilled.$target" nmt generate "$teacher" "${languages[@]}" \
    --input "$run_dir/distilled.$source" --output "$run_dir/distilled.$target" --beam 4
stage filter "$run_dir/filtered.$source" nmt clean "${languages[@]}" --train "$run_dir/distilled" \
    --dest "$run_dir/filtered" "${excluded[@]}" --score-with "$teacher" "$backward" --keep 0.95 --page "$run_dir/filtered.html"
stage "align filtered" "$run_dir/filtered.links" link filtered
stage "align train" "$run_dir/train.links" link train
text=(--like "$teacher") start=(--init-from "$teacher")
[ -z "$given" ] || text=(--vocab-size "${VOCAB_SIZE:-8000}" ${capitals[@]+"${capitals[@]}"} "${tokenization[@]}") start=()
stage "preprocess student" "$run_dir/student-data" nmt preprocess "${languages[@]}" "${text[@]}" --augment \
    --train "$run_dir/filtered" --alignments "$run_dir/filtered.links" \
    --train "$run_dir/train" --alignments "$run_dir/train.links" --valid "$valid" --dest "$run_dir/student-data"
train_model student 1 ${start[@]+"${start[@]}"} --decoder-layers 2 --guided-alignment 2
stage export "$run_dir/int8" nmt export ctranslate2 "$student" --output "$run_dir/int8" --quantization int8
stage evaluate "$run_dir/scores" evaluate
stage robustness "$run_dir/robustness" measure_robustness
run nmt report ${trainings[@]+"${trainings[@]}"} "$run_dir/student" --output "$run_dir/training.html"
python recipes/service_card.py "$run_dir" "$source" "$target" "${LICENCE:-}"
cat "$run_dir/scores" "$run_dir/robustness"
say "The model card is $run_dir/README.md, and the page of all stages $run_dir/index.html"
printf '%q serve %q --engine ctranslate2 --compute-type int8\n' "$(command -v nmt)" "$(realpath "$student")"
