// Words that stay as they are, such as addresses and placeholders: nmt/text/protected.py for the page, without alignments.

const letter = /[\p{L}\p{N}]/u;

// Returns functions for the patterns in protected.json.
export function protection(patterns) {
  const compiled = patterns.map(pattern => new RegExp(pattern, "gsu"));

  // Returns where protected words begin and end, in order.
  function spans(text) {
    const matches = compiled
      .flatMap(pattern => [...text.matchAll(pattern)])
      .map(match => [match.index, match.index + match[0].length])
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const joined = [];
    for (const [start, stop] of matches) {
      const last = joined.at(-1);
      if (last && start < last[1]) last[1] = Math.max(stop, last[1]);
      else joined.push([start, stop]);
    }
    return joined;
  }

  // Returns whether nothing of a text is translated.
  function stays(text) {
    const others = spans(text).reduceRight((rest, [start, stop]) => rest.slice(0, start) + rest.slice(stop), text);
    return !/\p{L}/u.test(others);
  }

  // Returns where a translation has protected words, in any capitals. A word may begin another one, such as %1 and %10.
  function copiesIn(translation, words) {
    const longestFirst = [...new Set(words)].sort((a, b) => b.length - a.length);
    const escaped = longestFirst.map(word => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
    const matches = words.length ? [...translation.matchAll(new RegExp(escaped.join("|"), "giu"))] : [];
    return matches.map(match => ({ word: match[0], start: match.index, stop: match.index + match[0].length }));
  }

  // Returns the translation with each protected word of the source: where the translation has it, or else inserted at
  // the same share of the length. A copy in the translation is that of one word.
  function restored(source, translation) {
    const kept = spans(source).map(([begin, end]) => ({ begin, end, word: source.slice(begin, end) }));
    const copies = copiesIn(translation, kept.map(each => each.word));
    const isSame = [(a, b) => a === b, (a, b) => a.toLowerCase() === b.toLowerCase()];
    for (const isCopy of isSame) {
      for (const each of kept.filter(({ copy }) => !copy)) {
        each.copy = copies.find(copy => !copy.isTaken && isCopy(copy.word, each.word));
        if (each.copy) each.copy.isTaken = true;
      }
    }
    const gaps = [0, ...[...translation.matchAll(/\s|$/g)].map(gap => gap.index)];
    for (const each of kept) {
      const goal = (each.begin / Math.max(1, source.length - each.word.length)) * translation.length;
      const gap = gaps.reduce((best, other) => (Math.abs(other - goal) < Math.abs(best - goal) ? other : best));
      each.place = each.copy ?? { start: gap, stop: gap };
    }
    kept.sort((a, b) => a.place.start - b.place.start);
    let done = "", position = 0;
    for (const { word, begin, end, copy, place } of kept) {
      done += translation.slice(position, place.start);
      position = Math.max(position, place.stop);
      const behind = translation.slice(position);
      const left = done && (copy ? letter.test(done.at(-1)) && !letter.test(source[begin - 1] ?? "") : !/\s$/.test(done));
      const right = behind && (copy ? letter.test(behind[0]) && !letter.test(source[end] ?? "") : !/^\s/.test(behind));
      done += `${left ? " " : ""}${word}${right ? " " : ""}`;
    }
    return done + translation.slice(position);
  }

  // Joins segments that do not end at a space, or that a protected word reaches over.
  function joined(segments) {
    const kept = spans(segments.join("")), sentences = [];
    let position = 0, current = "";
    for (const segment of segments) {
      current += segment;
      position += segment.length;
      if (!/\s$|[^\x00-\x7f]$/.test(segment) || kept.some(([begin, stop]) => begin < position && position < stop)) continue;
      sentences.push(current);
      current = "";
    }
    return current ? [...sentences, current] : sentences;
  }

  return { spans, stays, restored, joined };
}
