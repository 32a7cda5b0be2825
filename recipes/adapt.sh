#!/usr/bin/env bash
# Adapts a model to a translator's earlier translations, and shows what became better and what was forgotten.
#
#   bash recipes/adapt.sh MODEL MEMORY... [--hours H] [-- nmt train option...]
#
# MODEL is a checkpoint. A MEMORY is a TMX, TSV, XLIFF or PO file, another corpus that nmt clean reads, or the PREFIX of
# two text files. The languages are those of the model; DIRECTION=eng_Latn-fra_Latn names them if it has several. Nothing
# leaves the machine.
# 1. The memories are cleaned. The newest pairs, which come last, are held out: HELD_OUT (500) for the test, and as many
#    for validation. No pair that is similar to a held-out one stays in the training text.
# 2. Text of the old domain, GENERAL=prefix, is mixed in so that little is forgotten: as many lines as the memory has pairs.
#    If there is only its source side, the model translates it. If there are both, it is cleaned, and HELD_OUT pairs are
#    held out for the test and for validation as in step 1. If the model was trained on GENERAL, more seems forgotten than
#    is, because it knows the held-out pairs.
# 3. The model is trained for H hours (default 0.5) with the options after --, for example --lora 16.
# 4. The tuned model, and its average with the old one, translate the validation text. The better one on the new domain is
#    taken, of those that lose at most 0.5 BLEU on the old domain; if both lose more, the one that loses less.
# 5. The old and the new model translate the test sets. A paired bootstrap test says whether differences are significant.
# TEST and OLD_TEST are prefixes of test sets of the new and of the old domain in place of held-out text. RUN=folder
# receives all files (default runs/adapt): the model adapted.safetensors, and its card README.md. Start the recipe again to
# resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage="usage: adapt.sh MODEL MEMORY... [--hours H] [-- nmt train option...]"
[ $# -ge 2 ] || fail "MODEL or MEMORY is missing; $usage"
model=$(path_or "$1" '') hours=0.5
parse_prefixes "$usage" MEMORY "${@:2}"
memories=()
for prefix in "${prefixes[@]}"; do memories+=(--train "$prefix"); done
[ -e "$model" ] || fail "the model $model does not exist; give a checkpoint"
run_dir=$(path_or "${RUN:-}" runs/adapt)
held_out=${HELD_OUT:-500}
whole_or_fail HELD_OUT "$held_out"
general=$(path_or "${GENERAL:-}" '') test=$(path_or "${TEST:-}" '') old_test=$(path_or "${OLD_TEST:-}" '')

set_up_environment
mkdir -p "$run_dir/out"
choose_direction "$model"
for prefix in ${test:+"$test"} ${old_test:+"$old_test"}; do
    for language in "$source" "$target"; do
        [ -e "$(file_of "$prefix" "$language")" ] || fail "$prefix.$language does not exist; check TEST and OLD_TEST"
    done
done

# translate NAME MODEL PREFIX [OPTION...]: translates the source side of a corpus to out/NAME.
translate() {
    unless_there "$run_dir/out/$1" nmt generate "$2" "${languages[@]}" --input "$(file_of "$3" "$source")" \
        --output "$run_dir/out/$1" "${@:4}"
}
# compare NAME PREFIX [NAME...]: prints the scores of the translations of a test set, such as new.before.
compare() {
    local reference system systems=()
    reference=$(realpath "$(file_of "$2" "$target")")
    for system in "$1.before" "$1.after" "${@:3}"; do systems+=(--hypothesis "$system"); done
    (cd "$run_dir/out" && nmt score --reference "$reference" --target-lang "$target" --metric bleu --metric chrf \
        --paired bootstrap "${systems[@]}")
}

excluded=(${test:+--exclude "$test"} ${old_test:+--exclude "$old_test"})
unless_there "$run_dir/memory.$source" nmt clean "${languages[@]}" "${memories[@]}" ${excluded[@]+"${excluded[@]}"} \
    --dest "$run_dir/memory"
split=(python recipes/hold_out.py --held-out "$held_out")
unless_there "$run_dir/new.$source" "${split[@]}" ${test:+--no-test} "$run_dir/memory" "$run_dir/new" "$source" "$target"
training=(--train "$run_dir/new") domains=(new)
if [ -n "$general" ] && [ -e "$(file_of "$general" "$target")" ]; then
    excluded+=(--exclude "$run_dir/new-valid")
    [ -n "$test" ] || excluded+=(--exclude "$run_dir/new-test")
    unless_there "$run_dir/general.$source" nmt clean "${languages[@]}" --train "$general" "${excluded[@]}" \
        --dest "$run_dir/general"
    unless_there "$run_dir/old.$source" "${split[@]}" ${old_test:+--no-test} "$run_dir/general" "$run_dir/old" "$source" \
        "$target" --like "$run_dir/new.$source"
    domains+=(old)
elif [ -n "$general" ]; then
    unless_there "$run_dir/old.$source" python recipes/hold_out.py --held-out 0 "$general" "$run_dir/old" "$source" \
        --like "$run_dir/new.$source"
    unless_there "$run_dir/old.$target" nmt generate "$model" "${languages[@]}" --input "$run_dir/old.$source" \
        --output "$run_dir/old.$target"
fi
[ -z "$general" ] || training+=(--train "$run_dir/old")
text=("${languages[@]}")
[ -z "${DIRECTION:-}" ] || text=(--languages "$source,$target" --directions "$source-$target")
unless_there "$run_dir/data" nmt preprocess "${text[@]}" "${training[@]}" --valid "$run_dir/new-valid" --like "$model" \
    --dest "$run_dir/data"
tuned=$run_dir/run/best.safetensors averaged=$run_dir/averaged.safetensors adapted=$run_dir/adapted.safetensors
unless_there "$run_dir/run/average.safetensors" nmt train "$run_dir/data" --init-from "$model" --save-dir "$run_dir/run" \
    --minutes "$(awk -v h="$hours" 'BEGIN { print 60 * h }')" ${options[@]+"${options[@]}"}
unless_there "$averaged" nmt average-checkpoints "$model" "$tuned" --output "$averaged"
for domain in "${domains[@]}"; do
    for name in model tuned averaged; do
        translate "$domain-valid.$name" "${!name}" "$run_dir/$domain-valid" --beam 1
        nmt score --reference "$run_dir/$domain-valid.$target" --hypothesis "$run_dir/out/$domain-valid.$name" \
            --target-lang "$target" --json > "$run_dir/out/$domain-valid.$name.json"
    done
done
taken=$(python recipes/adapted.py "$run_dir/out" "${domains[@]}")
ln -sf "$(realpath "${!taken}")" "$adapted"
new_test=${test:-$run_dir/new-test} old_test=${old_test:-$run_dir/old-test}
translate new.before "$model" "$new_test"
translate new.after "$adapted" "$new_test"
translate new.after-with-memory "$adapted" "$new_test" --memory "$run_dir/new"
if [ -e "$(file_of "$old_test" "$target")" ]; then
    translate old.before "$model" "$old_test"
    translate old.after "$adapted" "$old_test"
fi
{
    printf '# %s, adapted\n\n' "$(basename "$model")"
    printf 'From %s to %s, adapted to %d pairs' "$source" "$target" "$(wc -l < "$run_dir/new.$source")"
    [ -z "$general" ] || printf ' and %d of the old domain' "$(wc -l < "$run_dir/old.$source")"
    printf '. The model is the %s one.\n\nThe new domain:\n\n```\n' "$taken"
    compare new "$new_test" new.after-with-memory
    if [ -e "$run_dir/out/old.after" ]; then
        printf '```\n\nThe old domain:\n\n```\n'
        compare old "$old_test"
    fi
    printf '```\n\nThe commands:\n\n```\n%s\n```\n' "$(cat "$run_dir"/*.made-from "$run_dir/run"/*.made-from)"
} > "$run_dir/README.md.part"
mv "$run_dir/README.md.part" "$run_dir/README.md"
cat "$run_dir/README.md"
say "The model is $adapted, and its card $run_dir/README.md"
