# The common part of the scripts of this folder. Each trains one toolkit, unless that is done, and translates PART:
#
#   bash recipes/measure/peers/TOOLKIT.sh TEXT PIECES CONFIGURATION SEED MINUTES OUT PART
#
# TEXT is a folder with train, choose and test, each .de and .en. PIECES has the same files as subword pieces, and
# the sentencepiece model. PART is choose or test. OUT receives PART.en and result.json. PEERS=folder receives an
# environment for each toolkit. side_by_side.sh calls these scripts.
# shellcheck shell=bash disable=SC2034 # the scripts use the variables
. "$(dirname "${BASH_SOURCE[0]}")/../../common.sh"

[ $# = 7 ] || fail "usage: bash recipes/measure/peers/TOOLKIT.sh TEXT PIECES CONFIGURATION SEED MINUTES OUT PART"
text=$(path_or "$1" -) pieces=$(path_or "$2" -) configuration=$3 seed=$4 minutes=$5 out=$(path_or "$6" -) part=$7
toolkit=$(basename "$0" .sh)
config=recipes/measure/peers/$toolkit-$configuration
environment=$(path_or "${PEERS:-}" runs/peers)/$toolkit
model=$out/model
set_up_environment
mkdir -p "$model"
if [ "$configuration" = 2 ] && [ "$toolkit" != nmt ]; then # the first one without dropout
    config=$out/without-dropout
    sed 's/\(dropout: \[*\)0\.1/\10.0/' "recipes/measure/peers/$toolkit-1.yaml" > "$config.yaml"
fi
export OMP_NUM_THREADS=1

# train SIGNAL COMMAND...: runs the training for the given minutes on one core, and ends it with SIGNAL.
train() {
    [ ! -e "$out/training.json" ] || return 0
    # What an interrupted training left cannot be resumed, because its time would begin again.
    rm -rf "$model"
    mkdir -p "$model"
    run python recipes/measure/side_by_side.py train "$minutes" "$1" "$out" "${@:2}"
}

# text_of_pieces PIECES FILE: writes the text of translations that consist of pieces.
text_of_pieces() {
    python recipes/measure/side_by_side.py decode "$pieces/data/subword.model" < "$1" > "$2"
}

# finish UPDATES TOKENS: writes result.json.
finish() {
    sed "s/^{/{\"updates\": $1, \"target_tokens\": $2, /" "$out/training.json" > "$out/result.json"
}
