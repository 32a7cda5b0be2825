# Functions shared by wmt14_en_de.sh and wmt14_en_fr.sh, which source this file and set these variables:
#   target      the target language
#   corpora     the training corpora, each as the prefix of its files in an archive
#   dev_sets    the years of newstest that make up the validation set
#   subwords    the options of nmt preprocess for the subword model
#   big         the architecture that the argument `big` selects
# shellcheck shell=bash disable=SC2034,SC2154
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

STEPS="download unpack preprocess train evaluate"
SITE=${SITE:-https://www.statmt.org}

usage() {
    echo "usage: [DATA=folder] [RUN=folder] [GPUS=8] [SEED=1] bash recipes/wmt14_en_$target.sh [base|big] [STEP...]" \
        "[-- nmt train option...]" >&2
    echo "steps (all of them if none is named): $STEPS" >&2
    exit 1
}

# source_of ARCHIVE: prints the URL of the archive, and its MD5 if sacreBLEU publishes one.
source_of() {
    case $1 in
        training-parallel-europarl-v7.tgz | training-parallel-commoncrawl.tgz | training-parallel-un.tgz)
            echo "$SITE/wmt13/$1" ;;
        training-parallel-nc-v9.tgz) echo "$SITE/wmt14/$1" ;;
        training-giga-fren.tar) echo "$SITE/wmt10/$1" ;;
        test-full.tgz) echo "$SITE/wmt14/$1 a8cd784e006feb32ac6f3d9ec7eb389a" ;;
        test-filtered.tgz) echo "$SITE/wmt14/$1 84c597844c1542e29c2aff23aaee4310" ;;
        newstest2013.tgz) echo "$SITE/wmt13/test.tgz 48eca5d02f637af44e85186847141f67" ;;
        newstest2012.tgz) echo "$SITE/wmt12/test.tgz 608232d34ebc4ba2ff70fead45674e47" ;;
    esac
}

# archive_of CORPUS: prints the archive that holds a training corpus.
archive_of() {
    case $1 in
        training/europarl-v7.*) echo training-parallel-europarl-v7.tgz ;;
        commoncrawl.*) echo training-parallel-commoncrawl.tgz ;;
        training/news-commentary-v9.*) echo training-parallel-nc-v9.tgz ;;
        un/undoc.*) echo training-parallel-un.tgz ;;
        giga-fren.*) echo training-giga-fren.tar ;;
    esac
}

# extract ARCHIVE FOLDER MEMBER...: extracts the members into FOLDER; fails if one is missing.
extract() {
    local archive=$1 folder=$2 wrong
    shift 2
    wrong=$(wrong_with "$data/$archive" "$archive")
    [ ! "$wrong" ] || fail "$data/$archive $wrong; remove it and run this again"
    rm -rf "$folder.part" "$folder"
    mkdir -p "$folder.part"
    tar -xf "$data/$archive" -C "$folder.part" "$@" ||
        fail "$data/$archive does not have all of $*, or it is damaged; remove it and run this again"
    mkdir -p "$(dirname "$folder")"
    mv "$folder.part" "$folder"
}

# unwrap_sgm FILE: prints the text of an SGM file, one segment a line, with single spaces and none at the ends.
unwrap_sgm() {
    sed -n 's/^<seg[^>]*>\(.*\)<\/seg>.*$/\1/p' "$1" | sed 's/[[:space:]][[:space:]]*/ /g; s/^ //; s/ $//'
}

get_archive() {
    local url md5
    read -r url md5 <<< "$(source_of "$1")"
    download "$url" "$data/$1" "$md5"
}

step_download() {
    local corpus year
    for corpus in "${corpora[@]}"; do get_archive "$(archive_of "$corpus")"; done
    for year in "${dev_sets[@]}"; do get_archive "newstest$year.tgz"; done
    get_archive test-full.tgz
    get_archive test-filtered.tgz
}

unpack_corpus() {
    local corpus=$1 name
    name=$(basename "$corpus")
    local members=("$corpus.en" "$corpus.$target")
    [ "${corpus#giga-fren}" = "$corpus" ] || members=("$corpus.en.gz" "$corpus.$target.gz")
    extract "$(archive_of "$corpus")" "$text/unpacked-$name" "${members[@]}"
    for language in en "$target"; do
        python recipes/utf8.py "$(file_of "$text/unpacked-$name/$corpus" "$language")" "$text/$name.$language.part"
    done
    for language in en "$target"; do mv "$text/$name.$language.part" "$text/$name.$language"; done
    rm -r "$text/unpacked-$name"
}

# unpack_set ARCHIVE NAME SOURCE TARGET: writes a development or test set from two SGM files.
unpack_set() {
    extract "$1" "$text/unpacked-$2" "$3" "$4"
    unwrap_sgm "$text/unpacked-$2/$3" > "$text/$2.en"
    unwrap_sgm "$text/unpacked-$2/$4" > "$text/$2.$target.part"
    [ -s "$text/$2.en" ] || fail "$3 in $data/$1 has no segments; remove the archive and run this again"
    mv "$text/$2.$target.part" "$text/$2.$target"
    rm -r "$text/unpacked-$2"
}

join_dev_sets() {
    local language
    for language in en "$target"; do
        for year in "${dev_sets[@]}"; do cat "$text/newstest$year.$language"; done > "$text/valid.$language.part"
        mv "$text/valid.$language.part" "$text/valid.$language"
    done
}

step_unpack() {
    local corpus year pair=${target}en
    [ "$target" = de ] || pair=fren
    mkdir -p "$text"
    for corpus in "${corpora[@]}"; do
        unless_there "$text/$(basename "$corpus").$target" unpack_corpus "$corpus"
    done
    for year in "${dev_sets[@]}"; do
        unless_there "$text/newstest$year.$target" unpack_set "newstest$year.tgz" "newstest$year" \
            "test/newstest$year-src.en.sgm" "test/newstest$year-src.$target.sgm"
    done
    unless_there "$text/valid.$target" join_dev_sets
    unless_there "$text/newstest2014.$target" unpack_set test-full.tgz newstest2014 \
        "test-full/newstest2014-$pair-src.en.sgm" "test-full/newstest2014-$pair-ref.$target.sgm"
    unless_there "$text/newstest2014-filtered.$target" unpack_set test-filtered.tgz newstest2014-filtered \
        "test/newstest2014-$pair-src.en.sgm" "test/newstest2014-$pair-ref.$target.sgm"
}

step_preprocess() {
    local options=() corpus workers
    workers=${WORKERS:-$(python -c 'from nmt.resources import usable_cores; print(usable_cores())')}
    for corpus in "${corpora[@]}"; do options+=(--train "$text/$(basename "$corpus")"); done
    unless_there "$run_dir/data" nmt preprocess --source-lang en --target-lang "$target" "${options[@]}" \
        --tokenizer moses --normalize-punctuation "${PUNCTUATION:-none}" \
        --valid "$text/valid" --test "$text/newstest2014" --test "$text/newstest2014-filtered" "${subwords[@]}" \
        --workers "$workers" --dest "$run_dir/data"
}

# The paper saves a checkpoint every 10 minutes. On its P100 GPUs that was every 1,500 updates of base and every 600 of
# big. On any GPU, the average covers the same number of updates. Base trains for 100,500, which 1,500 divides, so that
# the checkpoints of the average are equally far apart.
step_train() {
    run nmt train "$run_dir/data" --arch "$arch" --save-dir "$model" --max-updates "$updates" \
        --save-updates "$between" --keep-checkpoints 20 --seed "$seed" --gpus "${GPUS:-1}" --device cuda \
        ${train_options[@]+"${train_options[@]}"}
}

step_evaluate() {
    local set
    run nmt average-checkpoints "$model" --last "$averaged" --output "$model/average.safetensors"
    for set in newstest2014 newstest2014-filtered; do
        run nmt generate "$model/average.safetensors" --input "$text/$set.en" --output "$model/$set.$target" \
            --beam 4 --alpha 0.6 --max-length-offset 50 --no-protect --workers "${GPUS:-1}"
        run nmt score --reference "$text/$set.$target" --hypothesis "$model/$set.$target" --metric bleu \
            --metric paper-bleu --target-lang "$target" | sed "s/^/$set: /"
    done | tee "$model/scores.txt"
    say "The scores are in $model/scores.txt"
}

wmt14() {
    local size=base steps=() step
    case ${1:-} in base | big) size=$1 && shift ;; esac
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case " $STEPS " in *" $1 "*) steps+=("$1") && shift ;; *) usage ;; esac
    done
    [ "${1:-}" != -- ] || shift
    train_options=("$@") seed=${SEED:-1}
    whole_or_fail SEED "$seed"
    refuse --seed "set SEED, as in SEED=2, for a run folder of its own" "$@"
    refuse --save-minutes "give --save-updates" "$@"
    if [ $size = base ]; then
        arch=transformer_base updates=100500 between=1500 averaged=5
    else
        arch=$big updates=300000 between=600 averaged=20
    fi
    data=$(path_or "${DATA:-}" runs/wmt14-corpora)
    run_dir=$(path_or "${RUN:-}" "runs/wmt14-en-$target")
    text=$run_dir/text model=$run_dir/$size
    [ "$seed" = 1 ] || model=$model-seed$seed
    mkdir -p "$data" "$run_dir"
    set_up_environment
    # shellcheck disable=SC2086
    [ ${#steps[@]} -gt 0 ] || steps=($STEPS)
    for step in "${steps[@]}"; do "step_$step"; done
}
