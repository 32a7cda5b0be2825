"""Trains a small MarianMTModel with Seq2SeqTrainer, or translates with it. transformers.sh calls it.

MarianTokenizer uses the shared sentencepiece model, and so gives the same pieces as the other toolkits get.
"""

import json
import sys
import time
from pathlib import Path

import psutil
import torch
import transformers
import yaml

LONGEST = 200
START = psutil.Process().create_time()


def lines_of(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def tokenizer(folder: str, pieces: str) -> transformers.MarianTokenizer:
    vocabulary = ["<pad>", "</s>", "<unk>", *lines_of(f"{pieces}/vocabulary")]
    ids = Path(folder, "vocabulary.json")
    ids.write_text(json.dumps({piece: piece_id for piece_id, piece in enumerate(vocabulary)}), encoding="utf-8")
    model = f"{pieces}/data/subword.model"
    return transformers.MarianTokenizer(model, model, str(ids), model_max_length=LONGEST)


class EndOfTime(transformers.TrainerCallback):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def share_left(self) -> float:
        return max(0.0, 1 - (time.time() - START) / self.seconds)

    def on_step_end(self, _args, _state, control, **_) -> None:
        control.should_training_stop = self.share_left() == 0


class CountingCollator(transformers.DataCollatorForSeq2Seq):
    target_tokens = 0

    def __call__(self, features: list, return_tensors: str | None = None) -> dict:
        batch = super().__call__(features, return_tensors)
        self.target_tokens += int((batch["labels"] != self.label_pad_token_id).sum())
        return batch


def train(folder: str, pieces: str, text: str, config: str, minutes: str, seed: str) -> None:
    options = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    transformers.set_seed(int(seed))
    tokens = tokenizer(folder, pieces)
    encoded = tokens(lines_of(f"{text}/train.de"), text_target=lines_of(f"{text}/train.en"), truncation=True)
    pairs = [{"input_ids": i, "labels": o} for i, o in zip(encoded["input_ids"], encoded["labels"], strict=True)]
    pad = tokens.pad_token_id
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": tokens.eos_token_id}
    model = transformers.MarianMTModel(
        transformers.MarianConfig(vocab_size=len(tokens), forced_eos_token_id=None, **ids, **options["model"])
    )
    end, collator = EndOfTime(60 * float(minutes)), CountingCollator(tokens, model=model)
    arguments = transformers.Seq2SeqTrainingArguments(folder, seed=int(seed), **options["training"])
    optimizer = schedule = None
    if options["linear_over_time"]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, weight_decay=0)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda update: min(1, (update + 1) / arguments.warmup_steps) * end.share_left()
        )
    updating = (optimizer, schedule)
    trainer = transformers.Seq2SeqTrainer(model, arguments, collator, pairs, callbacks=[end], optimizers=updating)
    trainer.train()
    trainer.save_model()
    Path(folder, "counts").write_text(f"{trainer.state.global_step} {collator.target_tokens}\n", encoding="utf-8")


def translate(folder: str, pieces: str, source: str, output: str) -> None:
    tokens = tokenizer(folder, pieces)
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    lines = lines_of(source)
    by_length, translations = sorted(set(lines), key=len), {}
    for begin in range(0, len(by_length), 32):
        batch = tokens(by_length[begin : begin + 32], return_tensors="pt", padding=True, truncation=True)
        ids = model.generate(**batch, num_beams=5, max_length=LONGEST, bad_words_ids=[[tokens.pad_token_id]])
        texts = tokens.batch_decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        translations |= zip(by_length[begin : begin + 32], (" ".join(text.split()) for text in texts), strict=True)
    Path(output).write_text("".join(f"{translations[line]}\n" for line in lines), encoding="utf-8")


{"train": train, "translate": translate}[sys.argv[1]](*sys.argv[2:])
