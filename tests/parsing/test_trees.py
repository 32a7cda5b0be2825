"""Trees become sequences and sequences become trees, and the scores of brackets are EVALB's."""

import json
import random
import re
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import failed, run
from hypothesis import given
from hypothesis import strategies as st
from PYEVALB.parser import create_from_bracket_string
from PYEVALB.scorer import Scorer

from nmt.errors import NmtError
from nmt.parsing.evalb import Counts, evalb, sentence_counts
from nmt.parsing.sequences import are_sequences, first_restored, linearized, restored
from nmt.parsing.trees import TOP, Node, Word, normalized, read_trees, untagged, words_of, write_tree

CAT = "(TOP (S (NP (DT The) (NN cat)) (VP (VBD slept)) (. .)))"
labels = st.sampled_from(["S", "NP", "VP", "PP", "ADVP", "PRT", "SBAR", "WHNP", "QP", "ADVP|PRT", "X"])
tags = st.sampled_from(["NN", "VB", "DT", ",", ".", ":", "``", "''", "-LRB-", "PRP$", "CD"])
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"], exclude_characters="()"), min_size=1)
words = st.builds(Word, tags, texts)
nodes = st.recursive(
    st.builds(Node, labels, st.lists(words, min_size=1, max_size=3).map(tuple)),
    lambda inner: st.builds(Node, labels, st.lists(inner | words, min_size=1, max_size=4).map(tuple)),
    max_leaves=12,
)
tops = st.lists(nodes | words, min_size=1, max_size=3).map(lambda children: Node(TOP, tuple(children)))


def tree(text: str) -> Node:
    ((_, node),) = read_trees(text.split("\n"), "test")
    return node


@pytest.mark.parametrize("raw, expected", [
    ("( (S (NP-SBJ-1 (NN a)) (VP=2 (VB b))))", "(TOP (S (NP (NN a)) (VP (VB b))))"),
    ("(ROOT (S (NP (NN a))))", "(TOP (S (NP (NN a))))"),
    ("(S (NP (NN a)))", "(TOP (S (NP (NN a))))"),
    ("(TOP (NP (NN a)) (. .))", "(TOP (NP (NN a)) (. .))"),
    ("( (S (NP-SBJ (-NONE- *-1)) (VP (VB b) (NP (-NONE- *)) (S (NP (-NONE- *))))))", "(TOP (S (VP (VB b))))"),
    ("( (VP (VP (-LRB- (NN a)) (ADVP|PRT (RB b)))))", "(TOP (VP (VP (-LRB- (NN a)) (ADVP|PRT (RB b)))))"),
])  # fmt: skip
def test_normalisation_removes_traces_and_function_tags(raw: str, expected: str) -> None:
    node = normalized(tree(raw))
    assert node
    assert write_tree(node) == expected


def test_trees_are_read_with_any_spaces_and_line_breaks() -> None:
    lines = ["", "(TOP(S", "  ( NP (DT The)", "\t(NN cat))(VP", "(VBD slept)) (. .)) ) (TOP (X (NN b)))", ""]
    trees = list(read_trees(lines, "test"))
    assert [line for line, _ in trees] == [2, 5]
    assert [write_tree(made) for _, made in trees] == [CAT, "(TOP (X (NN b)))"]


@pytest.mark.parametrize("text, message", [
    ("(S (NP (NN a))\n", "a bracket that begins in line 1 is not closed"),
    ("(S (NP (NN a))))", r"line 1: '\)' is outside of all brackets"),
    ("(S (NP (NN a)))\nword", "line 2: 'word' is outside of all brackets"),
    ("(S\n(NP))", "line 2: a bracket that begins in line 2 holds neither"),
    ("(S (NP (NN a) b))", "holds neither"),
    ("(NN a)", "holds neither"),
])  # fmt: skip
def test_text_that_is_not_a_tree_is_refused(text: str, message: str) -> None:
    with pytest.raises(NmtError, match=message):
        list(read_trees(text.split("\n"), "test"))


@given(tops, st.booleans())
def test_writing_and_linearising_can_be_undone(top: Node, numbered: bool) -> None:
    assert tree(write_tree(top)) == top
    symbols = linearized(top, numbered)
    assert are_sequences([" ".join(symbols)])
    assert not are_sequences([write_tree(top)])
    assert restored(symbols, words_of(top)) == (top, Counter())


SYMBOLS = ["XX", "(S", "(NP", "(VP", ")S", ")NP", ")VP", "(", ")", "odd", "⁇", ")Q", "#1", "#3", "#0", "#"]


@given(st.lists(st.sampled_from(SYMBOLS), max_size=40), st.lists(words, max_size=8))
def test_any_symbols_become_a_tree_over_the_words(symbols: list[str], sentence: list[Word]) -> None:
    node, repairs = restored(symbols, sentence)
    assert words_of(node) == sentence
    if sentence:
        assert tree(write_tree(node)) == node
    assert restored(linearized(node), sentence) == (node, Counter())
    assert all(count > 0 for count in repairs.values())
    if symbols not in (linearized(node), linearized(node, numbered=True)):
        assert repairs or {"XX", "#1"} <= set(symbols)  # a mix of XX and numbers needs no repairs


@pytest.mark.parametrize("depth", [3000, pytest.param(20_000, marks=pytest.mark.nightly)])
def test_thousands_of_nested_brackets_are_restored_scored_and_linearised(tmp_path: Path, depth: int) -> None:
    unclosed = "(S XX " * depth + "XX "
    sequence = unclosed + ")S " * depth
    (tmp_path / "words").write_text("a " * depth + "b\n")
    (tmp_path / "sequence").write_text(sequence + "\n")
    restored_tree = tmp_path / "tree"
    done = run("trees", "restore", "--words", tmp_path / "words", "--output", restored_tree, stdin=unclosed.encode())
    assert f"repaired 1 of 1 sequences, {depth:,} unclosed" in done.stderr
    for hypothesis in ("tree", "sequence"):
        done = run("score", "--metric=evalb", "--reference", restored_tree, "--hypothesis", tmp_path / hypothesis)
        assert done.stdout.startswith(b"EVALB F1 100.00")
    run("trees", "linearize", "--train", restored_tree, "--dest", tmp_path / "data")
    assert (tmp_path / "data" / "train.trees").read_text().split() == sequence.split()


def test_the_steps_grow_linearly_with_the_depth_of_a_tree() -> None:
    def steps(depth: int) -> int:
        """Returns how many lines of Python run."""
        lines, former = 0, sys.gettrace()

        def count(*_: object) -> Callable[..., object]:
            nonlocal lines
            lines += 1
            return count

        symbols, words = ["(S", "XX"] * depth + ["XX"], untagged(["a"] * (depth + 1))
        sys.settrace(count)
        node, _ = restored(symbols, words)
        sentence_counts(tree(write_tree(node)), node)
        linearized(node)
        sys.settrace(former)
        return lines

    assert steps(400) < 2.2 * steps(200)


@pytest.mark.parametrize("symbols, expected, repairs", [
    ("(S (NP XX XX XX XX )NP )S", "(S (NP a b c))", {"surplus words": 1}),
    ("(S (NP XX )NP )S", "(S (NP a) b c)", {"missing words": 2}),
    ("(S (NP XX )NP (VP XX", "(S (NP a) (VP b c))", {"missing words": 1, "unclosed": 2}),
    ("(S (NP XX XX (VP XX )VP )S", "(S (NP a b (VP c)))", {"unclosed": 1}),
    ("(S (NP XX XX )PP (VP XX )VP )S", "(S (NP a b) (VP c))", {"mismatched": 1}),
    ("(S XX XX XX )S )S )NP", "(S a b c)", {"unopened": 2}),
    ("(S (NP )NP XX XX XX )S", "(S a b c)", {"empty": 1}),
    ("", "a b c", {"missing words": 3}),
    ("(S (NP #1 )NP (VP #3 )VP )S", "(S (NP a) (VP b c))", {"missing words": 1}),
    ("(S (NP #1 #1 #2 )NP (VP #3 #4 )VP #0 )S", "(S (NP a b) (VP c))", {"surplus words": 3}),
    ("(S #1 #x # #2 #3 )S", "(S a b c)", {"unknown": 2}),
    (f"(S XX XX XX #{'9' * 5000} )S", "(S a b c)", {"unknown": 1}),
])  # fmt: skip
def test_wrong_sequences_are_repaired(symbols: str, expected: str, repairs: dict[str, int]) -> None:
    node, made = restored(symbols.split(), [Word("T", text) for text in "abc"])
    written = write_tree(node)
    for text in "abc":
        written = written.replace(f"(T {text})", text)
    assert (written, dict(made)) == (f"(TOP {expected})", repairs)


def test_the_first_hypothesis_that_needs_no_repairs_is_used() -> None:
    sentence = untagged(["a", "b"])
    wrong, right, later = ["(S", "XX", ")S"], ["(S", "XX", "XX", ")S"], ["(NP", "XX", "XX", ")NP"]
    expected = restored(right, sentence)[0]
    assert first_restored([right, later], sentence) == (expected, Counter())
    assert first_restored([wrong, right, later], sentence) == (expected, {"replaced by a later hypothesis": 1})
    tree_of_wrong, repairs = restored(wrong, sentence)
    assert first_restored([wrong, wrong], sentence) == (tree_of_wrong, repairs + Counter({"sequences": 1}))


# Scores


def counts(gold: str, test: str) -> Counts:
    return sentence_counts(tree(gold), tree(test))


def test_bracket_counts_equal_a_count_by_hand() -> None:
    gold = "(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT a) (NN mat)))) (. .)))"
    test = "(TOP (S (NP (DT the) (NN cat)) (VP (VP (VBD sat) (IN on)) (NP (DT a) (NN mat))) (. .)))"
    tally = counts(gold, test)
    # S 0-6, NP 0-2, VP 2-6 and NP 4-6 are right; the inner VP 2-4 is wrong and crosses PP 3-6, which is missing.
    assert (tally.gold, tally.test, tally.matched, tally.crossing, tally.exact) == (5, 5, 4, 1, 0)
    assert (tally.precision, tally.recall, tally.f1) == (80, 80, pytest.approx(80))
    assert (tally.no_crossing, tally.few_crossing) == (0, 1)
    equal = counts("(TOP (S (NN a) (NP (NN b) (NN c))))", "(TOP (S (VP (VP (VP (NN a) (NN b)))) (NN c)))")
    assert (equal.crossing, equal.no_crossing, equal.few_crossing) == (3, 0, 0)
    two = counts("(TOP (S (NN a) (NP (NN b) (NN c))))", "(TOP (S (VP (VP (NN a) (NN b))) (NN c)))")
    assert (two.crossing, two.no_crossing, two.few_crossing) == (2, 0, 1)


@pytest.mark.parametrize("gold, test, expected", [
    ("(TOP (S (`` ``) (NN a) ('' '') (. .)))", "(TOP (S (NN a)) (. .))", (1, 1, 1)),  # punctuation is deleted
    ("(TOP (S (NN a) (NP (, ,))))", "(TOP (S (NN a) (, ,)))", (1, 1, 1)),  # so are brackets that this leaves empty
    ("(TOP (PRT (RP up)))", "(TOP (ADVP (RP up)))", (1, 1, 1)),  # PRT and ADVP are the same label
    ("(TOP (NP-SBJ-1 (NN a)))", "(TOP (NP=3 (NN a)))", (1, 1, 1)),  # function tags and indices do not count
    ("(TOP (NP (NP (NP (NN a)))))", "(TOP (NP (NP (NN a))))", (3, 2, 2)),  # a bracket is matched only once
    ("( (S (NN a)))", "(TOP (S (NN a)))", (2, 1, 1)),  # a root without a name counts, TOP does not
    ("(TOP (S (NN a) (NP (-NONE- *))))", "(TOP (S (NN a)))", (1, 1, 1)),
    ("(TOP (S (NN a)))", "(TOP (S (VB a)))", (1, 1, 1)),  # tags of words are not brackets
])  # fmt: skip
def test_brackets_are_counted_by_collins_rules(gold: str, test: str, expected: tuple[int, int, int]) -> None:
    tally = counts(gold, test)
    assert (tally.gold, tally.test, tally.matched) == expected


def test_sentences_with_other_words_are_errors_and_have_no_brackets_counted() -> None:
    good = tree(CAT)
    wrong_trees = map(tree, ["(TOP (S (NN other)))", "(TOP (S (DT The) (NN dog) (VBD slept)))", "(TOP (S (. .)))"])
    all_counts, _ = evalb((good, test) for test in [good, *wrong_trees, Node(TOP, ())])
    assert (all_counts.sentences, all_counts.errors, all_counts.skipped, all_counts.valid) == (5, 2, 2, 1)
    assert (all_counts.gold, all_counts.matched, all_counts.f1) == (3, 3, 100)


def test_the_second_score_leaves_out_sentences_of_more_than_40_words() -> None:
    short, long = (tree(f"(TOP (S {'(NN a) ' * length}))") for length in (40, 41))
    all_counts, short_counts = evalb([(short, short), (long, long)])
    assert (all_counts.gold, short_counts.gold) == (2, 1)


def damaged(top: Node, draw: random.Random) -> Node:
    """Returns the tree with some symbols of its sequence deleted or replaced."""
    others = ["", "(NP", ")NP", "(VP", ")VP", "(S", ")S", "(ADVP", "(PRT", ")PRT", ")ADVP"]
    symbols = [draw.choice(others) if draw.random() < 0.15 else symbol for symbol in linearized(top)]
    return restored(symbols, words_of(top))[0]


def drawn_tree(draw: random.Random, depth: int = 0) -> str:
    """Returns a random tree of words, punctuation and brackets."""
    if depth > 3 or (depth and draw.random() < 0.4):
        tag = draw.choice(["NN", "VB", "DT", "RB", ",", ".", "``", "''", ":"])
        return f"({tag} {draw.choice('abcdef')})"
    children = " ".join(drawn_tree(draw, depth + 1) for _ in range(draw.randint(1, 4)))
    return f"({draw.choice(['S', 'NP', 'VP', 'PP', 'ADVP', 'PRT'])} {children})"


def without_what_evalb_ignores(text: str) -> str | None:
    """Returns the tree with EVALB's rules applied, because PYEVALB has none of them; None if nothing is left.

    Punctuation and the brackets that it leaves empty are removed. PRT becomes ADVP, and TOP becomes ROOT.
    """
    text = re.sub(r" ?\((?:,|\.|``|''|:) \w\)", "", text)
    while (shorter := re.sub(r" ?\([A-Z]+\)", "", text)) != text:
        text = shorter
    return text.replace("(PRT ", "(ADVP ").replace("(TOP ", "(ROOT ") if text else None


def test_counts_equal_those_of_pyevalb() -> None:
    """PYEVALB compares sets of brackets, but EVALB counts them. So trees that have a bracket twice are left out."""
    draw, compared = random.Random(0), 0
    while compared < 500:
        gold_text = f"(TOP {drawn_tree(draw)})"
        test_text = write_tree(damaged(tree(gold_text), draw))
        gold, test = map(without_what_evalb_ignores, (gold_text, test_text))
        if gold is None or test is None or "ROOT" not in gold:
            continue
        trees = [create_from_bracket_string(text) for text in (gold, test)]
        if any(len(set(t.non_terminal_labels)) < len(t.non_terminal_labels) for t in trees):
            continue
        expected, tally = Scorer().score_trees(*trees), counts(gold_text, test_text)
        brackets = [expected.gold_brackets, expected.test_brackets, expected.matched_brackets]
        # PYEVALB also counts ROOT, which always matches.
        assert [tally.gold, tally.test, tally.matched] == [count - 1 for count in brackets]
        assert tally.crossing == expected.cross_brackets
        compared += 1


# The commands


def test_a_tree_without_tags_gets_those_of_gold_words_that_are_not_traces(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("(S (NP (NN a) (-NONE- *T*)) ('' '))\n")
    (tmp_path / "found").write_text("(TOP (S (NP (XX a)) (XX ')))\n")
    done = run("score", "--metric=evalb", "--reference", tmp_path / "gold", "--hypothesis", tmp_path / "found")
    assert done.stdout.startswith(b"EVALB F1 100.00")


def test_a_treebank_becomes_a_corpus_and_sequences_become_trees(tmp_path: Path) -> None:
    (tmp_path / "wsj").mkdir()
    for index in (1, 2):
        made = f"( (S (NP-SBJ (NN Dog{index}) (-NONE- *)) (VP (VBD ate) (NP (CD 12) (NNS cats))) (. .)))\n"
        (tmp_path / "wsj" / f"wsj_000{index}.mrg").write_text(made)
    dest = tmp_path / "trees"
    options = ["--train", tmp_path / "wsj" / "wsj_*.mrg", "--train", tmp_path / "wsj" / "wsj_0001.mrg"]
    options += ["--valid", tmp_path / "wsj" / "wsj_0002.mrg"]
    log = run("trees", "linearize", *options, "--dest", dest, "--lowercase", "--numbers", "--rare-below=2").stderr
    assert "2 train trees, 1 valid tree\n" in log
    assert (dest / "train.words").read_text() == "dog0 ate 00 cats .\ndog0 ate 00 cats .\n"
    sequence = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S\n"
    assert (dest / "train.trees").read_text() == 2 * sequence
    known = ["dog0", "ate", "00", "cats", "."]
    assert (dest / "symbols.txt").read_text().split() == sorted({*sequence.split(), *known})
    gold = "(TOP (S (NP (NN Dog2)) (VP (VBD ate) (NP (CD 12) (NNS cats))) (. .)))\n"
    assert (dest / "valid.mrg").read_text() == gold
    new = "The Dog7 ate 35 cats .\na Re-opening 4-H U.S.A. quickly Ära 1s s bees\n"
    assert run("trees", "words", "--like", dest, stdin=new.encode()).stdout.decode() == (
        "UNK-C dog0 ate 00 cats .\nUNK UNK-C-H-ing UNK-N-H UNK-C UNK-ly UNK-C UNK-N UNK UNK-s\n"
    )
    (tmp_path / "words").write_text("10\u00a0000 cats\n")  # a no-break space separates no words
    done = run("trees", "restore", "--words", tmp_path / "words", stdin=b"(S XX XX )S")
    assert done.stdout.decode().count("10\u00a0000") == 1 and "repaired 0" in done.stderr
    done = run("trees", "restore", "--trees", dest / "valid.mrg", stdin=sequence.encode())
    assert done.stdout.decode() == gold
    assert "repaired 0 of 1 sequences" in done.stderr
    run("trees", "linearize", *options, "--dest", tmp_path / "numbered", "--numbered", "--like", dest)
    assert (tmp_path / "numbered" / "source.json").read_text() == (dest / "source.json").read_text()
    assert "--like already decides" in failed("trees", "linearize", *options, "--dest=x", "--numbers", "--like", dest)
    sequence = (tmp_path / "numbered" / "valid.trees").read_text()
    assert sequence == "(S (NP #1 )NP (VP #2 (NP #3 #4 )NP )VP #5 )S\n"
    assert run("trees", "restore", "--trees", dest / "valid.mrg", stdin=sequence.encode()).stdout.decode() == gold
    (tmp_path / "tokens").write_text("Dogs ate .\n")
    done = run("trees", "restore", "--words", tmp_path / "tokens", stdin=b"(S (NP XX )NP (VP XX )S\n")
    assert done.stdout == b"(TOP (S (NP (XX Dogs)) (VP (XX ate)) (. .)))\n"
    assert "repaired 1 of 1 sequences, 1 missing words, 1 unclosed" in done.stderr


def test_memory_does_not_grow_with_the_treebank(tmp_path: Path) -> None:
    """Neither for trees nor for words. 500 more trees of 10 words would take more than a megabyte."""
    run("trees", "linearize", "--train", small_bank(tmp_path, 1), "--dest", tmp_path / "first")

    def peak(trees: int) -> int:
        dest, bank = tmp_path / f"dest{trees}", small_bank(tmp_path, trees)
        tracemalloc.start()
        run("trees", "linearize", "--train", bank, "--dest", dest, "--like", tmp_path / "first")
        run("trees", "words", "--input", dest / "train.words", "--like", dest, "--output", tmp_path / "words")
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    assert peak(600) - peak(100) < 300_000


def small_bank(folder: Path, trees: int) -> Path:
    path = folder / f"{trees}.mrg"
    path.write_text(f"(S {' (NN dog)' * 10})\n" * trees)
    return path


def test_trees_and_sequences_can_be_scored(tmp_path: Path) -> None:
    gold, test = tmp_path / "gold.mrg", tmp_path / "test"
    gold.write_text(f"{CAT}\n( (S (NP-SBJ (NN a)) (VP (VB b) (NP (-NONE- *))))) \n")
    score = ["score", "--metric=evalb", "--reference", gold]
    test.write_text("(S (NP XX XX )NP (VP XX )VP XX )S\n(S (NP XX XX )NP )S\n")
    scores = json.loads(run(*score, "--hypothesis", test, "--json").stdout)["evalb"]["all"]
    assert (scores["precision"], scores["recall"], scores["exact_match"]) == (80.0, pytest.approx(66.67), 50.0)
    hypotheses = [{"text": "(S (NP XX )NP )S"}, {"text": "(S (NP XX )NP (VP XX )VP )S"}]
    lines = [{"hypotheses": [{"text": "(S (NP #1 #2 )NP (VP #3 )VP #4 )S"}]}, {"hypotheses": hypotheses}]
    test.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run(*score, "--hypothesis", test)
    assert done.stdout.startswith(b"EVALB F1 100.00")
    assert "repaired 0 of 2 sequences, 1 replaced by a later hypothesis" in done.stderr
    test.write_text("(S (NP XX XX )NP (VP XX )VP XX )S\n(S ( XX\n")  # sequences, although "(" occurs in trees
    assert b"EVALB F1" in run(*score, "--hypothesis", test).stdout
    restored_trees = "(TOP (S (NP (XX The) (XX cat)) (VP (XX slept)) (XX .)))\n\n"  # the second sentence has no parse
    unclosed = run(*score, "--hypothesis=-", stdin=b"(S (NP XX" + restored_trees.encode()[1:]).stdout
    assert b"sentences 2, errors 1, skipped 1) all lengths" in unclosed
    done = run(*score, stdin=restored_trees.encode())
    first, second = done.stdout.decode().splitlines()
    assert first.startswith("EVALB F1 100.00 (precision 100.0, recall 100.0, exact match 100.0, average crossing 0.0,")
    assert "sentences 2, errors 0, skipped 1) all lengths" in first
    assert second.endswith("at most 40 words")


EATS = "(S (NP (DT the) (NN dog)) (VP (VB eats) (NP (NN fish))))"


@pytest.mark.parametrize("line, counts", [
    ("(DT the) (NN dog) (VB eats) (NN fish)", "precision 0.0, recall 0.0"),  # words without a tree
    ("(NP (DT the) (NN dog)) (VP (VB eats) (NP (NN fish)))", "precision 100.0, recall 75.0"),
    ("(S (NP (DT the) (NN dog)) (ADVP) (VP (VB eats) (NP (NN fish))))", "precision 100.0, recall 100.0"),
    (f"( {EATS})", "precision 80.0, recall 100.0"),  # no TOP
    ("(())", "errors 0, skipped 1"),
    ("(TOP)", "errors 0, skipped 1"),
    (EATS[:-1], "errors 1, skipped 0"),
    (f"{EATS})", "errors 1, skipped 0"),
    (EATS.replace("dog", "d\u00a0og"), "errors 1, skipped 0"),
])  # fmt: skip
def test_every_line_of_a_parser_counts_as_in_evalb(tmp_path: Path, line: str, counts: str) -> None:
    (tmp_path / "gold").write_text(f"{EATS}\n")
    done = run("score", "--metric=evalb", "--reference", tmp_path / "gold", stdin=f"{line}\n".encode())
    assert counts in done.stdout.decode().splitlines()[0]


def test_bad_treebanks_sequences_and_options_are_refused(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.mrg", tmp_path / "bad.mrg"
    good.write_text(f"{CAT}\n")
    linearize = ["trees", "linearize", "--dest", tmp_path / "dest", "--train"]
    bad.write_text(f"{CAT}\n(S (NP (NN a))\n")
    assert "bad.mrg: a bracket that begins in line 2 is not closed" in failed(*linearize, bad)
    bad.write_text(f"{CAT}\n( (S (NP (-NONE- *))))\n")
    assert "bad.mrg, line 2: a tree has no words" in failed(*linearize, bad)
    bad.write_text("\n")
    assert "bad.mrg has no trees" in failed(*linearize, bad)
    assert "matches no file; check the path" in failed(*linearize, tmp_path / "*.none")
    assert not (tmp_path / "dest").exists()
    restore = ["trees", "restore", "--trees", good]
    assert "good.mrg ends after 1 sentences, but the other file has more" in failed(*restore, stdin=b"XX\nXX\n")
    assert "standard input ends after 0 sentences" in failed(*restore, stdin=b"")
    assert "--sequences and --words are both standard input" in failed("trees", "restore", "--words=-", stdin=b"")
    assert "give either --words or --trees" in failed("trees", "restore", "--output=-", stdin=b"XX\n")
    score = ["score", "--metric=evalb", "--reference", good]
    assert "has 2 lines, but" in failed(*score, stdin=b"XX\nXX\n")
    assert "holds neither a tag and a word nor a label and brackets" in failed(*score, stdin=b"(S (NN a)) word\n")
    said = failed(*score, "--lowercase", stdin=b"XX\n")
    assert said == "error: --lowercase does not work with --metric evalb; leave out one of them"
    assert "no other --metric" in failed(*score, "--metric=bleu", stdin=b"XX\n")
    for line in (b'{"a": 1}\n', b'{"hypotheses": []}\n', b'{"hypotheses": ' + b"[" * 100_000 + b"\n"):
        assert "line 1, is not a line of nmt generate --output-format jsonl" in failed(*score, stdin=line)
    assert b"EVALB F1" in run(*score, stdin=b"{ (S XX XX\n").stdout
    words = ["trees", "words", "--like", tmp_path]
    assert "source.json cannot be read" in failed(*words)
    source = {"lowercase": True, "numbers": False, "known": ["a"]}
    for wrong in ({"known": [["a"]]}, {"known": "a"}, {"lowercase": 1}, {"numbers": None}):
        (tmp_path / "source.json").write_text(json.dumps(source | wrong))
        assert "source.json cannot be used: --" in failed(*words)
    (tmp_path / "source.json").write_text("[" * 100_000)
    assert "source.json cannot be read" in failed(*words)


def test_brackets_become_single_pieces(tmp_path: Path) -> None:
    subjects = [f"{noun}{i}" for i, noun in enumerate(50 * ["cats", "dogs", "XXL", "birds"])]
    bank = [f"(TOP (S (NP (NN {subject})) (VP (VB sleep))))\n" for subject in subjects]
    (tmp_path / "bank.mrg").write_text("".join(bank))
    run("trees", "linearize", "--train", tmp_path / "bank.mrg", "--dest", tmp_path / "trees")
    corpus = ["--train", tmp_path / "trees" / "train", "--valid", tmp_path / "trees" / "train"]
    options = ["--source-lang=words", "--target-lang=trees", "--tokenizer=none", "--vocab-size=330", "--workers=1"]
    symbols = ["--symbols", tmp_path / "trees" / "symbols.txt", "--dest", tmp_path / "data"]
    log = run("preprocess", *options, *corpus, *symbols).stderr
    assert "train: 200 pairs" in log
    assert "trees 1,600 pieces (8.0 a line)" in log
    large = [*options, "--vocab-size=9000", *corpus, *symbols[:3], tmp_path / "large"]
    # With symbols, a vocabulary that is too large becomes as large as the corpus allows.
    assert re.search(r"vocabulary: [5-9]\d\d pieces", run("preprocess", *large).stderr)
    (tmp_path / "twice").write_text("(S\n(S\n")
    message = failed("preprocess", *options, *corpus, "--symbols", tmp_path / "twice", "--dest", tmp_path / "other")
    assert "twice, line 2: '(S' is not a new word" in message
