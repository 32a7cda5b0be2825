// Words that stay as they are, such as addresses and placeholders: nmt/text/protected.py for the page, without alignments.

// Returns functions for the patterns in protected.json, each with the signs that a text must have for it.
export function protection(patterns) {
  const compiled = patterns.map(({ signs, pattern, flags }) => ({ signs, pattern: new RegExp(pattern, `g${flags}`) }));

  // Returns where protected words begin and end, in order.
  function spans(text) {
    const matches = compiled
      .filter(({ signs }) => !signs.length || signs.some(sign => text.includes(sign)))
      .flatMap(({ pattern }) => [...text.matchAll(pattern)].map(match => [match.index, match.index + match[0].length]))
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
    let start = 0, others = "";
    for (const [begin, stop] of spans(text)) {
      others += text.slice(start, begin);
      start = stop;
    }
    return !/\p{L}/u.test(others + text.slice(start));
  }

  // Returns the translation with each protected word of the source: where the translation has it, or else inserted at
  // the same share of the length.
  function restored(source, translation) {
    for (const [begin, end] of spans(source)) {
      const word = source.slice(begin, end), index = translation.indexOf(word);
      if (index < 0) {
        const gaps = [0, ...[...translation.matchAll(/\s|$/g)].map(gap => gap.index)];
        const goal = (begin / Math.max(1, source.length - word.length)) * translation.length;
        const gap = gaps.reduce((best, other) => (Math.abs(other - goal) < Math.abs(best - goal) ? other : best));
        translation = [translation.slice(0, gap).trimEnd(), word, translation.slice(gap).trimStart()]
          .filter(Boolean)
          .join(" ");
        continue;
      }
      const letter = /[\p{L}\p{N}]/u, before = translation.slice(0, index), behind = translation.slice(index + word.length);
      const left = letter.test(before.at(-1) ?? "") && !letter.test(source[begin - 1] ?? "") ? " " : "";
      const right = letter.test(behind[0] ?? "") && !letter.test(source[end] ?? "") ? " " : "";
      translation = before + left + word + right + behind;
    }
    return translation;
  }

  // Joins segments that do not end at a space, or that a protected word reaches over.
  function joined(segments) {
    const kept = spans(segments.join("")), sentences = [];
    let position = 0, current = "";
    for (const segment of segments) {
      current += segment;
      position += segment.length;
      const isEdge = /\s$|[^\x00-\x7f]$/.test(segment) && !kept.some(([begin, stop]) => begin < position && position < stop);
      if (isEdge) {
        sentences.push(current);
        current = "";
      }
    }
    return current ? [...sentences, current] : sentences;
  }

  return { spans, stays, restored, joined };
}
