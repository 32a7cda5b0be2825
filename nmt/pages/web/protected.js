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

  // Returns the translation with each protected word of the source: where the translation has it, or else inserted at
  // the same share of the length.
  function restored(source, translation) {
    for (const [begin, end] of spans(source)) {
      const word = source.slice(begin, end);
      let start = translation.indexOf(word);
      if (start < 0) start = translation.toLowerCase().indexOf(word.toLowerCase());
      let stop = start + word.length;
      if (start < 0) {
        const gaps = [0, ...[...translation.matchAll(/\s|$/g)].map(gap => gap.index)];
        const goal = (begin / Math.max(1, source.length - word.length)) * translation.length;
        start = stop = gaps.reduce((best, other) => (Math.abs(other - goal) < Math.abs(best - goal) ? other : best));
      }
      const [before, behind] = [translation.slice(0, start), translation.slice(stop)];
      const isNew = start === stop;
      const left = before && (isNew ? !/\s$/.test(before) : letter.test(before.at(-1)) && !letter.test(source[begin - 1] ?? ""));
      const right = behind && (isNew ? !/^\s/.test(behind) : letter.test(behind[0]) && !letter.test(source[end] ?? ""));
      translation = `${before}${left ? " " : ""}${word}${right ? " " : ""}${behind}`;
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
      if (!/\s$|[^\x00-\x7f]$/.test(segment) || kept.some(([begin, stop]) => begin < position && position < stop)) continue;
      sentences.push(current);
      current = "";
    }
    return current ? [...sentences, current] : sentences;
  }

  return { spans, stays, restored, joined };
}
