"""The options of every command, each declared once: the field is the flag, its help text the flag's help.

No torch here, so that `nmt --help` answers at once.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from nmt.errors import NmtError
from nmt.options import Config, option

# Tokens trained on at once, which fill a GPU, and tokens times d_model, which stay in the cache of a CPU.
_GPU_TOKENS, _CPU_NUMBERS = 8192, 2**20
# More than any machine can use, but few enough for every size computed from them to fit into 64 bits.
_WIDEST, _LONGEST, _MOST_PROCESSES = 50_000, 1_000_000, 1024


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """A Transformer (paper §3). A registry entry states the shape; the defaults of the rest are the paper's."""

    encoder_layers: int = option(help="Layers of the encoder, N.", panel="Model", at_least=1, at_most=1000)
    decoder_layers: int = option(help="Layers of the decoder, N.", panel="Model", at_least=1, at_most=1000)
    d_model: int = option(help="Width of embeddings and layer outputs.", panel="Model", at_least=2, at_most=_WIDEST)
    d_ff: int = option(help="Inner width of the feed-forward layers.", panel="Model", at_least=1, at_most=_WIDEST)
    heads: int = option(help="Attention heads, h.", panel="Model", at_least=1, at_most=1000)
    d_k: int = option(help="Width of a head's queries and keys.", panel="Model", at_least=1, at_most=_WIDEST)
    d_v: int = option(help="Width of a head's values.", panel="Model", at_least=1, at_most=_WIDEST)
    dropout: float = option(
        help="P_drop, on every sub-layer's output and on the sums of embeddings and positions.",
        panel="Model",
        at_least=0,
        below=1,
    )
    attention_dropout: float = option(
        0.0, help="Dropout on attention weights; the paper's for parsing only.", panel="Model", at_least=0, below=1
    )
    activation_dropout: float = option(
        0.0, help="Dropout on the feed-forward's inner activation.", panel="Model", at_least=0, below=1
    )
    norm: Literal["post", "pre"] = option(
        "post", help="LayerNorm behind every residual sum, as in the paper, or before every sub-layer.", panel="Model"
    )
    attention: Literal["scaled-dot-product", "dot-product", "additive"] = option(
        "scaled-dot-product", help="What a query's fit to a key is computed by (paper §3.2.1).", panel="Model"
    )
    attention_window: int | None = option(
        None,
        help="Restrict self-attention to the r nearest positions that a position may see (paper §4).",
        panel="Model",
        at_least=1,
    )
    learned_positions: int | None = option(
        None,
        help="Learn the encodings of so many positions, which no sentence may exceed, instead of sinusoids "
        "(paper Table 3, row E).",
        panel="Model",
        at_least=1,
        at_most=_LONGEST,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 2:
            raise NmtError(
                f"--d-model must be even, because positions are pairs of sine and cosine, but is {self.d_model}"
            )

    def variants(self) -> dict[str, Any]:
        """The fields that have a default, the paper's model's, and another value here."""
        optional = [f for f in fields(self) if f.default is not MISSING]
        return {f.name: getattr(self, f.name) for f in optional if getattr(self, f.name) != f.default}

    def check_positions(self, needed: int, why: str, way_out: str) -> None:
        """Raises NmtError if positions are learned and fewer than `needed`; `why` says what needs them."""
        if self.learned_positions is not None and needed > self.learned_positions:
            raise NmtError(f"the model learns {self.learned_positions:,} positions, but {why} {needed:,}; {way_out}")

    def parameters(self, vocab_size: int) -> int:
        """Trainable numbers with one vocabulary shared by source, target and softmax."""
        attention = self.d_model * self.heads * 2 * (self.d_k + self.d_v)
        feed_forward = 2 * self.d_model * self.d_ff + self.d_ff + self.d_model
        if self.attention == "additive":
            attention += self.heads * self.d_k
        norm = 2 * self.d_model
        encoder = self.encoder_layers * (attention + feed_forward + 2 * norm)
        decoder = self.decoder_layers * (2 * attention + feed_forward + 3 * norm)
        last_norms = 2 * norm if self.norm == "pre" else 0
        positions = 2 * (self.learned_positions or 0) * self.d_model
        return vocab_size * self.d_model + positions + encoder + decoder + last_norms

    def training_flops(self, vocab_size: int, source_tokens: int, target_tokens: int) -> float:
        """Floating-point operations to train on this many tokens: six for each weight a token is multiplied with.

        The decoder's keys and values of the encoder output count as source tokens'. Left out is what depends on the
        sentence's length: attention's scores, about 1 % at the length of sentences.
        """
        half = self.d_model * self.heads * (self.d_k + self.d_v)  # queries and output, or keys and values
        feed_forward = 2 * self.d_model * self.d_ff
        encoder = self.encoder_layers * (2 * half + feed_forward) + self.decoder_layers * half
        decoder = self.decoder_layers * (3 * half + feed_forward) + vocab_size * self.d_model
        return 6.0 * (encoder * source_tokens + decoder * target_tokens)


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """What `nmt preprocess` does to the text."""

    source_lang: str = option(help="Source language, the suffix of its files (en).", panel="Corpus")
    target_lang: str = option(help="Target language, the suffix of its files (de).", panel="Corpus")
    train: tuple[str, ...] = option(
        help="Training corpus: PREFIX.en and PREFIX.de, or .gz. May repeat.", panel="Corpus"
    )
    copies: tuple[int, ...] = option(
        (),
        help="How often a training corpus is taken, once for each --train, in their order.",
        panel="Corpus",
        at_least=1,
        at_most=1000,
    )
    valid: str = option(help="Validation corpus, likewise.", panel="Corpus")
    test: tuple[str, ...] = option((), help="Test corpora, likewise. May repeat.", panel="Corpus")
    dest: str = option(help="Folder to write; must not exist.", panel="Corpus")
    tokenizer: Literal["moses", "none"] = option(
        "moses",
        help="Moses punctuation normalisation and tokenisation before the subwords, undone after decoding; or none.",
        panel="Text",
    )
    lowercase: bool = option(False, help="Lowercase both sides. The translations are then lowercase too.", panel="Text")
    subword: Literal["bpe", "unigram", "wordpiece"] = option(
        "bpe", help="Kind of subword model to train.", panel="Subwords"
    )
    vocab_size: int = option(
        37000,
        help="Pieces in the vocabulary (each vocabulary, if separate); with --symbols, at most so many.",
        panel="Subwords",
        at_least=8,
        at_most=1_000_000,
    )
    joint_vocab: bool = option(
        True, help="One vocabulary for both languages, so that all embeddings are shared.", panel="Subwords"
    )
    subword_model: str | None = option(
        None,
        help="Use this sentencepiece model instead of training one; --subword wordpiece segments greedily with it.",
        panel="Subwords",
    )
    symbols: str | None = option(
        None,
        help="File of words, one a line, that are a piece each, such as the brackets of nmt trees.",
        panel="Subwords",
    )
    subword_sample: int = option(
        2_000_000, help="Lines, of each language, that the subword model is trained on.", panel="Subwords", at_least=1
    )
    max_length: int = option(
        256, help="Drop training pairs with more pieces than this on either side.", panel="Filter", at_least=1
    )
    max_length_ratio: float = option(
        9.0,
        help="Drop training pairs where one side has more than this many times the other's pieces.",
        panel="Filter",
        at_least=1,
    )
    workers: int = option(
        2, help="Processes that tokenise and encode.", panel="Work", at_least=1, at_most=_MOST_PROCESSES
    )
    seed: int = option(1, help="Seed of the sample that the subword model is trained on.", panel="Work", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for flag, lang in (("--source-lang", self.source_lang), ("--target-lang", self.target_lang)):
            if not lang or "/" in lang:
                raise NmtError(f"{flag} must be the suffix of a file's name, such as en, but is {lang!r}")
        if self.source_lang == self.target_lang:
            raise NmtError(f"--source-lang and --target-lang are both {self.source_lang!r}; they must differ")
        if self.copies and len(self.copies) != len(self.train):
            raise NmtError(
                f"--copies must be given once for each of the {len(self.train)} --train, but is "
                f"{' '.join(map(str, self.copies))}"
            )
        if self.subword_model and self.symbols:
            raise NmtError("--symbols are for training a subword model; leave them out with --subword-model")
        if self.subword_model and not self.joint_vocab:
            raise NmtError("--subword-model gives one model for both languages; leave out --separate-vocab")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Config):
    """Where and in which precision a model runs."""

    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", help="auto takes a GPU where there is one.", panel="Hardware"
    )
    precision: Literal["auto", "bf16", "fp32"] = option(
        "auto",
        help="bf16 computes matrix products in bfloat16, with fp32 weights; auto takes it where the hardware has it.",
        panel="Hardware",
    )


@dataclass(frozen=True, kw_only=True)
class PlanConfig(Config):
    """What is trained on at once."""

    batch_tokens: int = option(
        25_000, help="Source tokens and target tokens in an update, over all devices.", panel="Batches", at_least=1
    )
    batch_groups: int = option(
        8,
        help="Groups of similar length an update is put together from; 1 is the paper's text, 8 what its GPUs did.",
        panel="Batches",
        at_least=1,
        at_most=10_000,
    )
    device_tokens: int | None = option(
        None,
        help="Padded tokens a side in one forward pass; lower it if memory runs out, the update stays the same. "
        "Otherwise 8192 on a GPU, and on a CPU 2^20 / d_model, more than which is slower.",
        panel="Batches",
        at_least=1,
        at_most=1_000_000,
    )

    def tokens_at_once(self, device: str, d_model: int) -> int:
        """--device-tokens, or what suits `device`, cuda or cpu."""
        return self.device_tokens or (_GPU_TOKENS if device == "cuda" else max(1, _CPU_NUMBERS // d_model))


@dataclass(frozen=True, kw_only=True)
class BatchConfig(PlanConfig, RuntimeConfig):
    """What the speed of training depends on: what is trained on at once, where, and how."""

    compile: bool = option(
        False,
        help="Compile the layers with torch.compile, which takes a while at first. For a GPU in bf16, where attention "
        "is without dropout, windows or additive scores.",
        panel="Hardware",
    )


@dataclass(frozen=True, kw_only=True)
class TrainConfig(BatchConfig):
    """How `nmt train` trains. The defaults are the paper's base model (§5), unless the help says otherwise."""

    gpus: int = option(
        1,
        help="Processes to train with on this machine, each on a GPU of its own; with --device cpu they share the "
        "cores. The number changes the speed, not what is trained.",
        panel="Hardware",
        at_least=1,
        at_most=_MOST_PROCESSES,
    )
    rank_timeout: float = option(
        600.0,
        help="Seconds that processes wait for one another before the run ends.",
        panel="Hardware",
        above=0,
        at_most=1_000_000,
    )
    save_dir: str = option(help="Run folder: checkpoints, metrics.jsonl. Training resumes what it finds.", panel="Run")
    resume_changed: bool = option(
        False,
        help="Resume though model, data, batches or seed are not the run's own: from its weights, with a new epoch.",
        panel="Run",
    )
    max_updates: int = option(100_000, help="Updates to train for.", panel="Run", at_least=1)
    seed: int = option(1, help="Seed of weights, data order and dropout.", panel="Run", at_least=0)
    label_smoothing: float = option(
        0.1, help="Share of probability spread over the vocabulary.", panel="Optimiser", at_least=0, below=1
    )
    warmup_updates: int = option(4000, help="Updates of linear warm-up.", panel="Optimiser", at_least=1)
    lr_scale: float = option(
        1.0,
        help="Factor on the paper's d_model^-0.5 · min(step^-0.5, step · warmup^-1.5).",
        panel="Optimiser",
        above=0,
        at_most=1_000_000,
    )
    adam_beta1: float = option(0.9, help="Adam's β1.", panel="Optimiser", at_least=0, below=1)
    adam_beta2: float = option(0.98, help="Adam's β2.", panel="Optimiser", at_least=0, below=1)
    adam_epsilon: float = option(1e-9, help="Adam's ε.", panel="Optimiser", above=0)
    max_skipped_updates: int = option(
        10,
        help="Stop at so many updates in a row whose loss or gradient is not finite; each is skipped.",
        panel="Optimiser",
        at_least=1,
    )
    clip_norm: float | None = option(
        None, help="Scale gradients down to this norm. The paper does not.", panel="Optimiser", above=0
    )
    valid_updates: int = option(1000, help="Validate every so many updates.", panel="Validation", at_least=1)
    valid_bleu: bool = option(True, help="Also translate the validation set and score it.", panel="Validation")
    save_minutes: float = option(10.0, help="Write a snapshot every so many minutes.", panel="Checkpoints", above=0)
    save_updates: int | None = option(
        None, help="Write a snapshot every so many updates instead.", panel="Checkpoints", at_least=1
    )
    keep_checkpoints: int = option(20, help="Snapshots to keep.", panel="Checkpoints", at_least=1)
    log_updates: int = option(100, help="Log every so many updates.", panel="Run", at_least=1)


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Config):
    """Beam search (paper §6.1)."""

    beam: int = option(
        4, help="Hypotheses kept at every step; 1 is greedy search.", panel="Search", at_least=1, at_most=10_000
    )
    alpha: float = option(
        0.6, help="GNMT length penalty: score = log P / ((5 + length) / 6)^α.", panel="Search", at_least=0, at_most=10
    )
    max_length_offset: int = option(
        50, help="Longest output: pieces of the input plus this many.", panel="Search", at_least=0, at_most=100_000
    )
    n_best: int = option(
        1, help="Translations to return for each line; as text, so many lines.", panel="Search", at_least=1
    )
    max_source_length: int = option(
        512, help="Lines of more pieces are translated in parts of at most this many.", panel="Search", at_least=1
    )
    batch_tokens: int | None = option(
        None,
        help="Padded source tokens translated at once; lower it if memory runs out. Otherwise 4096, on a GPU 16384.",
        panel="Search",
        at_least=1,
    )

    def tokens_at_once(self, device: str) -> int:
        """--batch-tokens, or what suits `device`, cuda or cpu.

        On a GPU the kernels of a step take long to launch, however few rows they are for.
        """
        return self.batch_tokens or (16_384 if device == "cuda" else 4096)

    @property
    def longest(self) -> int:
        """Most tokens, EOS included, that a translation may have."""
        return self.max_source_length + 1 + self.max_length_offset

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise NmtError(f"--n-best must be at most --beam ({self.beam}), but is {self.n_best}")
