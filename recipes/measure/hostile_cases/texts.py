"""Odd text for the commands that read text. Every line of input has one line of output, whatever it contains."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from hostile_cases.commands import PREPROCESS, SEARCH, SIZES, Command, is_strict_json
from hostile_cases.damage import damaged
from hostile_cases.outcomes import Trial
from nmt.data.folder import DataFolder

_HUGE_LINE = 20_000  # characters; such a line takes some seconds to translate
_DEEP = 100_000
_ODD = (
    b"", b" ", b"\t", b"\0", b"\r", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
    "\u2028".encode(), "\x85".encode(), "\u200b".encode(), "\u202e".encode(), "a\u0301".encode() * 500, "😀".encode(),
    "\ue000\uffff".encode(), "▁ ▁▁".encode(), b"<s> </s> <unk> <pad>", b"<0x0A>", b"&lt;&#10;", b"@-@ @@", b"\x1b[2J",
    b"(", b"))((",
)  # fmt: skip


def text(random: Random) -> Trial:
    """Returns a command that reads odd text: `generate`, `preprocess`, `score` or `trees`."""
    return random.choice((_generate, _preprocess, _score, _linearize, _words, _restore, _evalb))(random)


def _odd_text(source: str, name: str, random: Random) -> tuple[str, int]:
    """Writes an odd version of the file `source`, perhaps as a damaged gzip file; returns its path and line count."""
    data = _odd_lines(Path(source).read_bytes(), random)
    count = data.count(b"\n")
    if data and not data.endswith(b"\n"):
        count += 1
    if random.random() < 0.8:
        Path(name).write_bytes(data)
        return name, count
    packed = gzip.compress(data)
    Path(f"{name}.gz").write_bytes(packed if random.random() < 0.3 else damaged(packed, random))
    return f"{name}.gz", count


def _odd_lines(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")[:-1]
    for _ in range(random.randint(1, 3)):
        number = random.randrange(len(lines))
        lines[number] = _odd_line(lines[number], random)
    return b"\n".join(lines) + random.choice((b"\n", b"\n", b"", b"\n\n", b"\r\n"))


def _odd_line(line: bytes, random: Random) -> bytes:
    at = random.randint(0, len(line))
    characters = "".join(chr(random.randrange(0x11_0000)) for _ in range(random.randint(1, 40)))
    inserted: tuple[Callable[[], bytes], ...] = (
        lambda: random.choice(_ODD),
        lambda: random.choice(_ODD),
        lambda: random.randbytes(random.randint(1, 100)),
        lambda: characters.encode(errors="surrogatepass"),
        lambda: random.choice((b"x", b"x ", "ä".encode(), b"(", b")", b".")) * _HUGE_LINE,
    )
    return line[:at] + random.choice(inserted)() + line[at:]


def _generate(random: Random) -> Trial:
    path, count = _odd_text("corpus/test.en", "odd", random)
    options = ("--output=out", "--max-source-length=64", "--beam=2", *SEARCH)
    return Trial(Command(("generate", "average.safetensors", f"--input={path}", *options), _line_count("out")), count)


def _preprocess(random: Random) -> Trial:
    prefix, lang = random.choice(("train", "valid")), random.choice(("en", "de"))
    _, count = _odd_text(f"corpus/{prefix}.{lang}", f"odd.{lang}", random)
    other = {"en": "de", "de": "en"}[lang]
    Path(f"odd.{other}").write_bytes(Path(f"corpus/{prefix}.{other}").read_bytes())
    options = (f"--{prefix}=odd", "--subword-model=data/subword.model", "--dest=new", "--workers=1")
    train = () if prefix == "train" else ("--train=corpus/train",)
    return Trial(Command((*PREPROCESS, *train, *options), _pairs(prefix)), count)


def _pairs(split: str) -> Callable[[], int]:
    def result() -> int:
        counts = DataFolder.open("new").meta.splits[split]
        return counts.pairs + sum(counts.dropped.values())

    return result


def _line_count(path: str) -> Callable[[], int]:
    return lambda: Path(path).read_bytes().decode().count("\n")


def _score(random: Random) -> Trial:
    path, _ = _odd_text("corpus/test.de", "odd", random)
    options = (f"--metric={random.choice(('bleu', 'chrf', 'ter', 'paper-bleu'))}", "--target-lang=de", "--json")
    arguments = ("score", "--reference=corpus/test.de", f"--hypothesis={path}", *options)
    return Trial(Command(arguments, _score_is_sane), True)


def _evalb(random: Random) -> Trial:
    path = _odd_trees(random)
    good = "corpus/trees.mrg"
    reference, hypothesis = random.choice(((path, path), (path, good), (good, path)))
    arguments = ("score", "--metric=evalb", f"--reference={reference}", f"--hypothesis={hypothesis}", "--json")
    return Trial(Command(arguments, _score_is_sane), True)


def _score_is_sane() -> bool:
    """Returns whether standard output, which goes to a file, is valid JSON."""
    sys.stdout.flush()
    return is_strict_json(Path("../stdout").read_text())


def _odd_trees(random: Random) -> str:
    """Writes an odd treebank file and returns its path."""
    if random.random() < 0.8:
        return _odd_text("corpus/trees.mrg", "odd", random)[0]
    Path("odd").write_text("(S " * _DEEP + "(NN x)" + ")" * _DEEP)
    return "odd"


def _linearize(random: Random) -> Trial:
    path = _odd_trees(random)
    words, sequences = _line_count("new/train.words"), _line_count("new/train.trees")
    arguments = ("trees", "linearize", f"--train={path}", "--dest=new")
    return Trial(Command(arguments, lambda: words() == sequences()), True)


def _words(random: Random) -> Trial:
    path, count = _odd_text("trees/train.words", "odd", random)
    arguments = ("trees", "words", "--like=trees", f"--input={path}", "--output=out")
    return Trial(Command(arguments, _line_count("out")), count)


def _restore(random: Random) -> Trial:
    files = {"words": "trees/train.words", "sequences": "trees/train.trees"}
    odd = random.choice(list(files))
    files[odd], _ = _odd_text(files[odd], "odd", random)
    if random.random() < 0.1:
        Path(files[odd]).write_text(("(S " * _DEEP + "XX " + ")S " * _DEEP + "\n") * SIZES["test"])
    arguments = ("trees", "restore", *(f"--{flag}={path}" for flag, path in files.items()), "--output=out")
    return Trial(Command(arguments, _line_count("out")), SIZES["test"])
