#!/usr/bin/env bash
# WMT14 English-German as in the paper. Trains on Europarl v7, Common Crawl and News Commentary v9 (4.5M pairs) with
# 37,000 joint BPE pieces, validates on newstest2013, and tests on newstest2014 in full (3,003 lines) and filtered
# (2,737 lines).
#
#   CUDA_VISIBLE_DEVICES=0 bash recipes/wmt14_en_de.sh [base|big] [STEP...] [-- nmt train option...]
#
# Estimates: 5 GB of disk for the archives and the data, and 7 GB more to train base or 22 GB for big; one hour of a core
# to preprocess, and 1 GB of RAM.
#
# base (the default) trains for 100,500 updates, saves a checkpoint every 1,500, and averages the last 5. big trains for
# 300,000 updates, saves a checkpoint every 600, and averages the last 20. The steps are download, unpack, preprocess,
# train and evaluate. Without STEP all of them run. Finished work is not repeated, except evaluate, which averages,
# translates and scores again, and writes the scores to scores.txt in the run folder of the model.
#
# DATA=folder holds the archives; missing ones are downloaded there from SITE (default https://www.statmt.org).
# RUN=folder receives all other files. SEED=2 trains another model on the same data, in base-seed2 beside base. WORKERS=N
# preprocesses with N processes (default: all cores that it may use). PUNCTUATION=both or source trains with ASCII
# punctuation on both sides or in the source (default none: the punctuation of the text).
#
# On a machine with several GPUs, train one model on each: what several gain on one model was not measured, and one GPU
# needs hours. GPUS=N trains one model on N GPUs. Without a GPU, the recipe stops before the training unless
# `-- --device cpu` is given.
set -euo pipefail
. "$(dirname "$0")/wmt14.sh"

target=de
corpora=(training/europarl-v7.de-en commoncrawl.de-en training/news-commentary-v9.de-en)
dev_sets=(2013)
subwords=(--vocab-size "${VOCAB_SIZE:-37000}")
big=transformer_big
wmt14 "$@"
