#!/usr/bin/env bash
# WMT14 English-German as the paper ran it: Europarl v7, Common Crawl and News Commentary v9 (4.5M pairs), 37,000 joint BPE
# pieces, newstest2013 to validate, newstest2014 in full (3,003 lines) and filtered (2,737) to test.
#
#   GPUS=8 bash recipes/wmt14_en_de.sh [base|big] [STEP...] [-- nmt train option...]
#
# base: 100,000 updates, the last 5 snapshots averaged; big: 300,000 and 20. Steps are download, unpack, preprocess,
# train and evaluate; all of them if none is named, and what is there already is not made again. DATA=folder has the
# archives, and those that are missing are downloaded there; RUN=folder is where everything else goes.
set -euo pipefail
. "$(dirname "$0")/wmt14.sh"

target=de
corpora=(training/europarl-v7.de-en commoncrawl.de-en training/news-commentary-v9.de-en)
dev_sets=(2013)
subwords=(--vocab-size "${VOCAB_SIZE:-37000}")
big=transformer_big
wmt14 "$@"
