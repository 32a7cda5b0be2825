#!/usr/bin/env bash
# Compares toolkits on one corpus: each trains for the same time on one core, with three configurations.
#
#   CORPUS=folder bash recipes/measure/side_by_side.sh [TOOLKIT...]
#
# The toolkits are nmt, joeynmt, eole, marian and transformers; by default, all. CORPUS has tokenised text: train.de,
# train.en, valid.de and valid.en, also compressed. The first 500 odd lines of valid choose one of three configurations,
# which is trained again with another seed. The table has the scores of both seeds on the even lines. MINUTES=20 is the
# time of a training, and PIECES=6000 the size of the vocabulary, which all toolkits share. RUN=folder receives
# everything, PEERS=folder an environment for each toolkit, and CORE=N names the core. Start the recipe again to resume
# it; a training that was interrupted begins again. recipes/measure/peers/README.md describes the configurations.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

toolkits=("$@")
[ $# -gt 0 ] || toolkits=(nmt joeynmt eole marian transformers)
for toolkit in "${toolkits[@]}"; do
    [ -e "recipes/measure/peers/$toolkit.sh" ] && [ "$toolkit" != runner ] ||
        fail "$toolkit is not a toolkit; choose from nmt, joeynmt, eole, marian, transformers"
done
run_dir=$(path_or "${RUN:-}" runs/side_by_side)
corpus=$(path_or "${CORPUS:-}" .)
for name in train.de train.en valid.de valid.en; do
    [ -e "$(file_of "$corpus/${name%.*}" "${name#*.}")" ] ||
        fail "$corpus has no $name; set CORPUS to a folder with tokenised text: train.de, train.en, valid.de, valid.en"
done
MINUTES=${MINUTES:-20} PIECES=${PIECES:-6000}
set_up_environment
text=$run_dir/text pieces=$run_dir/pieces

make_pieces() { # its arguments are for the record of unless_there
    local language
    rm -rf "$text" "$pieces.part"
    mkdir -p "$text" "$pieces.part"
    for language in de en; do
        text_of "$corpus/train" $language > "$text/train.$language"
        text_of "$corpus/valid" $language | awk 'NR % 2 == 1 && NR < 1000' > "$text/choose.$language"
        text_of "$corpus/valid" $language | awk 'NR % 2 == 0' > "$text/test.$language"
    done
    run nmt preprocess --source-lang de --target-lang en --train "$text/train" --valid "$text/choose" \
        --dest "$pieces.part/data" --vocab-size "$PIECES"
    python recipes/measure/side_by_side.py encode "$text" "$pieces.part"
    mv "$pieces.part" "$pieces"
}
unless_there "$pieces" make_pieces CORPUS="$corpus" PIECES="$PIECES" MINUTES="$MINUTES" \
    PEERS="$(cat recipes/measure/peers/* | cksum)"

# measure TOOLKIT CONFIGURATION SEED PART: trains unless that is done, translates a part, and scores the translations.
measure() {
    local folder=$run_dir/$1-$2-$3
    [ ! -s "$folder/$4.json" ] || return 0
    run bash "recipes/measure/peers/$1.sh" "$text" "$pieces" "$2" "$3" "$MINUTES" "$folder" "$4"
    nmt score --reference "$text/$4.en" --hypothesis "$folder/$4.en" --tokenize none --metric bleu \
        --metric chrf --bootstrap 1000 --json > "$folder/$4.json"
}
for toolkit in "${toolkits[@]}"; do
    for configuration in 1 2 3; do
        measure "$toolkit" "$configuration" 1 choose
    done
    chosen=$(python recipes/measure/side_by_side.py best "$run_dir" "$toolkit")
    measure "$toolkit" "$chosen" 1 test
    measure "$toolkit" "$chosen" 2 choose
    measure "$toolkit" "$chosen" 2 test
done
python recipes/measure/side_by_side.py table "$run_dir"
