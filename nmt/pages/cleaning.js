const grouped = n => n.toLocaleString("en");
const sum = numbers => numbers.reduce((a, b) => a + b, 0);
const share = (part, whole) => `${(100 * part / Math.max(whole, 1)).toFixed(1)} %`;
const read = sum(data.corpora.map(corpus => corpus.read));
const kept = sum(data.corpora.map(corpus => corpus.kept));

function drawFunnel() {
  $("total").textContent = `${grouped(kept)} of ${grouped(read)} pairs were kept (${share(kept, read)}).`;
  const rows = [["rule", "dropped", "share", "left", ""]];
  let left = read;
  data.reasons.forEach((reason, i) => {
    const dropped = sum(data.corpora.map(corpus => corpus.dropped[i]));
    left -= dropped;
    const bar = element("span", { class: "share", style: `width: ${100 * left / read}%` });
    rows.push([reason.name, grouped(dropped), share(dropped, read), grouped(left), bar]);
  });
  drawTable($("funnel"), rows, i => i > 0 && i < 4);
}

function drawCorpora() {
  $("by-corpus").hidden = data.corpora.length < 2;
  const head = ["corpus", "read", "kept", ...data.reasons.map(reason => reason.name)];
  const rows = data.corpora.map(corpus => [corpus.name, ...[corpus.read, corpus.kept, ...corpus.dropped].map(grouped)]);
  drawTable($("corpora"), [head, ...rows], i => i > 0);
}

// The left edge, the width and the height of the plot, in the units of the SVG.
const LEFT = 10, WIDTH = 380, HEIGHT = 130;

function histogram({ name, limit, isMinimum, edges, counts }) {
  const first = edges[0], last = edges[edges.length - 1];
  const x = value => LEFT + WIDTH * (value - first) / (last - first);
  const most = Math.log1p(Math.max(...counts));
  const svg = element("svg", { viewBox: `0 0 ${WIDTH + 2 * LEFT} ${HEIGHT + 24}`, role: "img", "aria-label": `histogram of ${name}` });
  counts.forEach((count, i) => {
    const height = HEIGHT * Math.log1p(count) / most;
    const dropped = isMinimum ? edges[i + 1] <= limit : edges[i] >= limit;
    const bar = {
      x: x(edges[i]), y: HEIGHT - height, width: Math.max(x(edges[i + 1]) - x(edges[i]) - 1, 1), height,
      style: `fill: var(${dropped ? "--bad" : "--accent"})`,
    };
    svg.append(element("rect", bar, element("title", {}, `${edges[i]} to ${edges[i + 1]}: ${grouped(count)} pairs`)));
  });
  const line = { x1: x(limit), x2: x(limit), y1: 0, y2: HEIGHT, style: "stroke: var(--text)", "stroke-dasharray": "4 3" };
  svg.append(element("line", line));
  for (const [value, anchor] of [[first, "start"], [last, "end"], [limit, "middle"]]) {
    if (value === limit && (x(limit) < 60 || x(limit) > WIDTH - 60)) continue;
    svg.append(element("text", { class: "axis", x: x(value), y: HEIGHT + 18, "text-anchor": anchor }, String(value)));
  }
  return element("figure", {}, element("figcaption", {}, name === "--keep" ? `score of at least ${limit} (${name})` : `${name} ${limit}`), svg);
}

function drawExamples() {
  $("examples").replaceChildren(
    ...data.reasons.map(reason =>
      element(
        "details",
        {},
        element("summary", {}, reason.name),
        ...reason.examples.map(pair =>
          element(
            "div",
            { class: "pair" },
            ...pair.map((line, i) => element("div", { lang: data.languages[i], dir: "auto" }, line || " ")),
          ),
        ),
      ),
    ),
  );
}

drawFunnel();
drawCorpora();
$("histograms").replaceChildren(...data.histograms.map(histogram));
drawExamples();
