"""Lines that join a running search, and parts of a line, get the translations that they would get alone."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from checkpoints import whole

from nmt import Translator
from nmt.config import SearchConfig
from nmt.translate.encoding import EncodedSentence, encode
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.running_search import RunningSearch
from nmt.translate.units import Translation

WORDS = ["ba", "de", "ki", "lo", "mu"]


@pytest.mark.parametrize("search", [
    SearchConfig(n_best=2, max_length_offset=9),
    SearchConfig(beam=1, alignments=True, max_length_offset=4),
    SearchConfig(beam=3, min_length=40, max_length_offset=60, no_repeat_ngram=2),
])  # fmt: skip
def test_lines_join_and_leave_at_any_time(translator: Translator, search: SearchConfig) -> None:
    draw = random.Random(search.beam)
    lines = [" ".join(draw.choices(WORDS, k=draw.choice([1, 3, 9, 30]))) for _ in range(40)]
    alone = [translator.hypotheses([line], search)[0] for line in lines]
    waiting = dict(enumerate(encode(translator.codec, whole(translator.codec, *lines), search)))
    running = RunningSearch(translator.engine, search, log_probs=True)
    translations = dict[int, list[Translation]]()
    longest_company = 0
    while waiting or running.keys:
        new = {key: waiting.pop(key) for key in list(waiting)[: draw.choice([0, 1, 2, 5])]}
        translations |= running.advance(new, draw.choice([1, 2, 5]))  # type: ignore[arg-type]
        longest_company = max(longest_company, len(running.keys))
    assert longest_company > 3
    for key, hypotheses in enumerate(alone):
        assert [(h.text, h.pieces, h.alignment) for h in translations[key]] == [
            (h.text, h.pieces, h.alignment) for h in hypotheses
        ]
        for joined, expected in zip(translations[key], hypotheses, strict=True):
            assert joined.log_probs == pytest.approx(expected.log_probs, abs=1e-5)


def test_parts_of_a_long_line_are_searched_in_batches(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, start = [], PyTorchEngine.start

    def counted(self: PyTorchEngine, sentences: Sequence[EncodedSentence], search: SearchConfig) -> Any:
        sizes.append(len(sentences))
        return start(self, sentences, search)

    monkeypatch.setattr(PyTorchEngine, "start", counted)
    search = SearchConfig(max_source_length=15, batch_tokens=3 * 16, max_length_offset=0)
    line = " ".join(WORDS * 30)
    alone = translator.translate([line], replace(search, batch_tokens=1))
    parts = len(sizes)
    assert translator.translate([line], search) == alone
    assert sizes[:parts] == [1] * parts
    assert max(sizes) == 3 and sum(sizes) == 2 * parts > 6
