"""Trains a small MarianMTModel with the Seq2SeqTrainer of transformers, or translates with it. transformers.sh calls it.

The tokeniser is MarianTokenizer with the shared sentencepiece model, and gives the same pieces as the other toolkits get.
"""

import argparse
import json
import time
from pathlib import Path

import psutil
import torch
import transformers
import yaml

LONGEST = 200


def tokenizer(folder: Path, vocabulary: Path, subword_model: str) -> transformers.MarianTokenizer:
    pieces = ["<pad>", "</s>", "<unk>", *vocabulary.read_text(encoding="utf-8").splitlines()]
    ids = folder / "vocabulary.json"
    ids.write_text(json.dumps({piece: piece_id for piece_id, piece in enumerate(pieces)}), encoding="utf-8")
    return transformers.MarianTokenizer(subword_model, subword_model, str(ids), model_max_length=LONGEST)


class EndOfTime(transformers.TrainerCallback):
    """Ends the training when the time since the start of the process is over."""

    def __init__(self, minutes: float) -> None:
        self.start, self.seconds = psutil.Process().create_time(), 60 * minutes

    def share_left(self) -> float:
        return max(0.0, 1 - (time.time() - self.start) / self.seconds)

    def on_step_end(self, _args, _state, control, **_) -> None:
        control.should_training_stop = self.share_left() == 0


class CountingCollator(transformers.DataCollatorForSeq2Seq):
    """Pads batches, and counts their target tokens."""

    target_tokens = 0

    def __call__(self, features: list, return_tensors: str | None = None) -> dict:
        batch = super().__call__(features, return_tensors)
        self.target_tokens += int((batch["labels"] != self.label_pad_token_id).sum())
        return batch


def train(options: argparse.Namespace) -> None:
    config = yaml.safe_load(options.config.read_text(encoding="utf-8"))
    transformers.set_seed(options.seed)
    source, target = (Path(f"{options.train}.{end}").read_text(encoding="utf-8").splitlines() for end in ("de", "en"))
    tokens = tokenizer(options.model, options.vocabulary, options.subword_model)
    encoded = tokens(source, text_target=target, truncation=True)
    sentences = [
        {"input_ids": ids, "labels": labels}
        for ids, labels in zip(encoded["input_ids"], encoded["labels"], strict=True)
    ]
    ids = {"pad_token_id": tokens.pad_token_id, "eos_token_id": tokens.eos_token_id, "forced_eos_token_id": None}
    sizes = {"vocab_size": len(tokens), "decoder_start_token_id": tokens.pad_token_id, "max_position_embeddings": 512}
    model = transformers.MarianMTModel(transformers.MarianConfig(**config["model"], **ids, **sizes))
    end = EndOfTime(options.minutes)
    warmup = config["training"]["warmup_steps"]
    optimizer = scheduler = None
    if config["linear_over_time"]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=config["training"]["learning_rate"], weight_decay=0)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda update: min(1, update / warmup) * end.share_left()
        )
    collator = CountingCollator(tokens, model=model)
    trainer = transformers.Seq2SeqTrainer(
        model,
        transformers.Seq2SeqTrainingArguments(
            str(options.model),
            **config["training"],
            max_steps=10**6,
            seed=options.seed,
            save_strategy="no",
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            train_sampling_strategy="group_by_length",
            logging_steps=50,
            dataloader_pin_memory=False,
        ),
        data_collator=collator,
        train_dataset=sentences,
        callbacks=[end],
        optimizers=(optimizer, scheduler),
    )
    trainer.train()
    trainer.save_model()
    (options.model / "counts").write_text(f"{trainer.state.global_step} {collator.target_tokens}\n", encoding="utf-8")


def translate(options: argparse.Namespace) -> None:
    tokens = tokenizer(options.model, options.vocabulary, options.subword_model)
    model = transformers.MarianMTModel.from_pretrained(options.model).eval()
    lines = options.input.read_text(encoding="utf-8").splitlines()
    by_length = sorted(range(len(lines)), key=lambda number: len(lines[number]))
    translations = [""] * len(lines)
    for begin in range(0, len(lines), 32):
        numbers = by_length[begin : begin + 32]
        batch = tokens([lines[number] for number in numbers], return_tensors="pt", padding=True, truncation=True)
        ids = model.generate(**batch, num_beams=5, max_length=LONGEST, bad_words_ids=[[tokens.pad_token_id]])
        for number, text in zip(numbers, tokens.batch_decode(ids, skip_special_tokens=True), strict=True):
            translations[number] = " ".join(text.split())
    options.output.write_text("".join(f"{translation}\n" for translation in translations), encoding="utf-8")


parser = argparse.ArgumentParser(description=__doc__)
commands = parser.add_subparsers(required=True)
for function, arguments in (
    (train, {"config": Path, "train": str, "minutes": float, "seed": int}),
    (translate, {"input": Path, "output": Path}),
):
    command = commands.add_parser(function.__name__)
    command.set_defaults(function=function)
    for name, kind in {"model": Path, "vocabulary": Path, "subword_model": str, **arguments}.items():
        command.add_argument(name, type=kind)
options = parser.parse_args()
options.function(options)
