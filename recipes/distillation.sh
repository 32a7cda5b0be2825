#!/usr/bin/env bash
# Sequence-level knowledge distillation (Kim and Rush 2016, arXiv:1606.07947): a fast student learns from a teacher.
#
#   bash recipes/distillation.sh TEACHER... [-- nmt train option...]
#
# 1. The teacher, one checkpoint or an ensemble of several, translates the source side of the training text.
# 2. The student, transformer_tiny_fast, is trained on these translations and on the real ones. It has the teacher's text
#    processing and vocabulary.
# 3. Both translate the validation set, or the test set with EVALUATE=test_2016_flickr: the teacher by beam search and
#    the student by greedy search, here and in CTranslate2 with 8-bit integers. They are scored, and the speed is
#    measured.
#
# The corpus is Multi30k, English to German. MULTI30K is its folder (default runs/multi30k-corpus, where multi30k.sh
# puts it). REPEATS=5 sets how often the speed of nmt is measured. RUN=folder receives all files. Start the recipe again
# to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

teachers=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    teachers+=("$(path_or "$1" '')")
    shift
done
for teacher in ${teachers[@]+"${teachers[@]}"}; do
    [ -e "$teacher" ] || fail "the teacher $teacher does not exist; give checkpoints, such as runs/x/average.safetensors"
done
[ ${#teachers[@]} -gt 0 ] || fail "no teacher is given; usage: distillation.sh TEACHER... [-- nmt train option...]"
corpus=$(path_or "${MULTI30K:-}" runs/multi30k-corpus)
[ -e "$corpus/train.en.gz" ] || fail "$corpus has no train.en.gz; download the corpus by recipes/multi30k.sh --prepare"
run_dir=$(path_or "${RUN:-}" runs/distillation)
evaluated=${EVALUATE:-val}
[ -e "$corpus/$evaluated.en.gz" ] || fail "$corpus has no $evaluated.en.gz; set EVALUATE to val or test_2016_flickr"
# Settings for 29,000 pairs and as many translations; options on the command line take precedence.
options=(--arch transformer_tiny_fast --dropout 0.2 --batch-tokens 2500 --batch-groups 4 --warmup-updates 1200
    --max-updates 6000 --save-updates 180 --average-last 5 --valid-updates 1000 "${@:2}")

write_source() { # its argument is for the record of unless_there
    gzip -t "$corpus/train.en.gz" || fail "$corpus/train.en.gz is not a whole gzip file; download it again"
    zcat < "$corpus/train.en.gz" > "$run_dir/distilled.en.part"
    mv "$run_dir/distilled.en.part" "$run_dir/distilled.en"
}

# measure NAME BEAM CHECKPOINT...: translates, scores, and measures the speed on one core.
measure() {
    local name=$1 beam=$2 folder=$run_dir/$1
    shift 2
    # An ensemble is translated with as a whole, but the speeds and the export are those of its first model.
    [ $# -eq 1 ] || name="first $name"
    mkdir -p "$folder"
    run nmt generate "$@" --input "$corpus/$evaluated.en.gz" --output "$folder/out.de" --beam "$beam" --alpha 1.0
    rm -rf "$folder/int8"
    run nmt export ctranslate2 "$1" --output "$folder/int8" --quantization int8
    OMP_NUM_THREADS=1 run python recipes/measure/benchmark.py generate --checkpoint "$1" --input "$run_dir/$evaluated.en" \
        --lines "$(wc -l < "$run_dir/$evaluated.en")" --device cpu --beam "$beam" --alpha 1.0 --repeats "${REPEATS:-5}" \
        --json > "$folder/speed.json"
    run python recipes/measure/peer_ctranslate2.py "$folder/int8" "$run_dir/$evaluated.en" --type int8 --beam "$beam" \
        --alpha 1.0 --output "$folder/out.int8.de" > "$folder/speed.int8.json"
    PYTHONPATH=recipes python - "$name" "$folder" << 'END'
import pathlib, sys
from service_card import speed_of
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
here, int8 = speed_of(folder / "speed.json"), speed_of(folder / "speed.int8.json")
print(f"{name}: {here:,.0f} sentences/s, in CTranslate2 with int8 {int8:,.0f} sentences/s")
END
}

set_up_environment
mkdir -p "$run_dir"
unless_there "$run_dir/distilled.en" write_source MULTI30K="$corpus"
unless_there "$run_dir/distilled.de" nmt generate "${teachers[@]}" --input "$run_dir/distilled.en" \
    --output "$run_dir/distilled.de" --beam 4 --alpha 1.0 --workers "${WORKERS:-1}"
unless_there "$run_dir/data" nmt preprocess --like "${teachers[0]}" --source-lang en --target-lang de \
    --train "$run_dir/distilled" --train "$corpus/train" --valid "$corpus/val" --dest "$run_dir/data"
unless_there "$run_dir/model/average.safetensors" nmt train "$run_dir/data" --save-dir "$run_dir/model" "${options[@]}"
zcat < "$corpus/$evaluated.en.gz" > "$run_dir/$evaluated.en"
measure teacher 4 "${teachers[@]}"
measure student 1 "$run_dir/model/average.safetensors"
run nmt score --reference "$corpus/$evaluated.de.gz" --hypothesis "$run_dir/teacher/out.de" \
    --hypothesis "$run_dir/student/out.de" --hypothesis "$run_dir/teacher/out.int8.de" \
    --hypothesis "$run_dir/student/out.int8.de"
