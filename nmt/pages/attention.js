// The attention weights of a sentence pair: one kind, one layer, and one or several heads at a time.
const KINDS = {
  cross: { name: "Cross-attention", query: "translation (each piece is predicted)", key: "source",
    about: "Each piece of the translation is predicted with attention to the source pieces." },
  encoder: { name: "Encoder self-attention", query: "source", key: "source", about: "Each source piece attends to all source pieces." },
  decoder: { name: "Decoder self-attention", query: "translation (as the decoder reads it)", key: "translation",
    about: "Each piece that the decoder reads attends to itself and to the pieces before it." },
};
const WORD_START = "▁";
for (const found of Object.values(data)) {
  const bytes = Uint8Array.from(atob(found.weights), c => c.charCodeAt(0)), view = new DataView(bytes.buffer);
  found.weights = Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}
let kind = "cross", layer = data.cross.layers - 1, heads = new Set([0]), chosen = null;

function weight(found, l, h, n, k) { return found.weights[((l * found.heads + h) * found.queries.length + n) * found.keys.length + k]; }

function mean(n, k) {
  let sum = 0;
  for (const h of heads) sum += weight(data[kind], layer, h, n, k);
  return sum / heads.size;
}

const shade = () => heads.size === 1 ? colour([...heads][0]) : style("--accent");
// On paper, the matrix must be as wide as the page.
const cellSize = () => document.documentElement.classList.contains("printing") ? Math.max(4, Math.min(24, 500 / data[kind].keys.length))
  : Math.max(data[kind].keys.length, data[kind].queries.length) > 30 ? 16 : 24;
const headsInWords = () => heads.size === 1 ? `head ${[...heads][0] + 1}` : `mean of the heads ${[...heads].map(h => h + 1).sort((a, b) => a - b).join(", ")}`;
const shownInWords = () => `${KINDS[kind].name}, layer ${layer + 1}, ${headsInWords()}`;

// A colour between the page's and the shade of the heads, as the colour scale shows it.
function mixed(weight) { return `color-mix(in srgb, ${shade()} ${(100 * weight).toFixed(1)}%, ${style("--page")})`; }

function say(n, k) {
  const found = data[kind], each = heads.size > 1 ? ` (${[...heads].map(h => `head ${h + 1}: ${weight(found, layer, h, n, k).toFixed(3)}`).join(", ")})` : "";
  $("status").textContent = `${found.queries[n]} → ${found.keys[k]}: ${mean(n, k).toFixed(3)}${each}`;
}

// Chooses a query, whose weights the sentences and the lines then show; null shows all.
function choose(n) {
  if (chosen === n) return;
  chosen = n;
  drawSentences(); drawLines(); markRow();
  const found = data[kind];
  if (n !== null) say(n, found.keys.reduce((best, _, k) => mean(n, k) > mean(n, best) ? k : best, 0));
}

function drawSentences() {
  const found = data[kind];
  $("query-name").textContent = KINDS[kind].query;
  $("key-name").textContent = KINDS[kind].key;
  const text = piece => piece.startsWith(WORD_START) ? ` ${piece.slice(1)}` : piece;
  const focused = document.activeElement?.dataset?.query;
  $("query").replaceChildren(...found.queries.map((piece, n) => {
    const made = element("button", { class: n === chosen ? "chosen" : "", "data-query": n }, text(piece));
    for (const event of ["pointerenter", "focus", "click"]) made.addEventListener(event, () => choose(n));
    return made;
  }));
  if (focused !== undefined) document.querySelector(`[data-query="${focused}"]`)?.focus();
  $("key").replaceChildren(...found.keys.map((piece, k) => element("span",
    chosen === null ? { style: "white-space:pre-wrap" } : { style: `white-space:pre-wrap;border-radius:4px;padding:2px 0;background:${mixed(mean(chosen, k) * 0.6)}` }, text(piece))));
}

function drawMatrix() {
  const found = data[kind], cell = cellSize(), ratio = devicePixelRatio, canvas = $("cells");
  $("matrix").style.setProperty("--cell", `${cell}px`);
  $("scale").style.setProperty("--shade", shade());
  $("columns").replaceChildren(...found.keys.map(piece => element("span", {}, piece)));
  $("rows").replaceChildren(...found.queries.map((piece, n) => {
    const made = element("button", { "data-row": n }, piece);
    for (const event of ["focus", "click"]) made.addEventListener(event, () => choose(n));
    return made;
  }));
  canvas.width = cell * found.keys.length * ratio; canvas.height = cell * found.queries.length * ratio;
  canvas.style.width = `${cell * found.keys.length}px`; canvas.style.height = `${cell * found.queries.length}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  found.queries.forEach((_, n) => found.keys.forEach((_, k) => {
    context.fillStyle = mixed(mean(n, k));
    context.fillRect(cell * k, cell * n, cell - 1, cell - 1);
  }));
  markRow();
}

function markRow() {
  for (const row of $("rows").children) row.classList.toggle("chosen", +row.dataset.row === chosen);
}

function cellAt(event) {
  const box = $("cells").getBoundingClientRect(), cell = cellSize(), found = data[kind];
  const [k, n] = [Math.floor((event.clientX - box.left) / cell), Math.floor((event.clientY - box.top) / cell)];
  return n >= 0 && k >= 0 && n < found.queries.length && k < found.keys.length ? [n, k] : null;
}

function drawLines() {
  const found = data[kind], row = 22, column = 150, gap = 240, width = 2 * column + gap;
  const svg = element("svg", { viewBox: `0 0 ${width} ${row * Math.max(found.queries.length, found.keys.length) + 10}`, width });
  const y = i => row * i + row / 2 + 5;
  found.queries.forEach((_, n) => found.keys.forEach((_, k) => {
    if (chosen !== null && chosen !== n) return;
    for (const h of heads) {
      const w = weight(found, layer, h, n, k);
      if (w >= 0.01) svg.append(element("line", { x1: column, x2: column + gap, y1: y(n), y2: y(k), stroke: colour(h), "stroke-width": 2.4, "stroke-opacity": w }));
    }
  }));
  found.queries.forEach((piece, n) => {
    const made = element("text", { x: column - 8, y: y(n) + 4, "text-anchor": "end", class: chosen !== null && chosen !== n ? "dim" : "" }, piece);
    made.addEventListener("pointerenter", () => choose(n));
    svg.append(made);
  });
  found.keys.forEach((piece, k) => svg.append(element("text", { x: column + gap + 8, y: y(k) + 4 }, piece)));
  svg.addEventListener("pointerleave", () => choose(null));
  $("lines").replaceChildren(svg);
}

function drawOverview() {
  const found = data[kind], place = $("overview"), [rows, columns] = [found.queries.length, found.keys.length];
  const rgb = style("--accent").match(/[0-9a-f]{2}/gi).map(x => parseInt(x, 16)), focused = document.activeElement?.ariaLabel;
  place.style.gridTemplateColumns = `max-content repeat(${found.heads}, minmax(0, 64px))`;
  place.replaceChildren(element("span"), ...Array.from({ length: found.heads }, (_, h) => element("span", { class: "muted", style: "text-align:center" }, h + 1)));
  for (let l = 0; l < found.layers; l++) {
    place.append(element("span", { class: "muted" }, l + 1));
    for (let h = 0; h < found.heads; h++) {
      const canvas = element("canvas", { width: columns, height: rows }), image = new ImageData(columns, rows);
      for (let n = 0; n < rows; n++) for (let k = 0; k < columns; k++) image.data.set([...rgb, 255 * weight(found, l, h, n, k)], 4 * (n * columns + k));
      canvas.getContext("2d").putImageData(image, 0, 0);
      const label = `layer ${l + 1}, head ${h + 1}`;
      const button = element("button", { "aria-label": label, title: label, "aria-pressed": l === layer && heads.has(h) }, canvas);
      button.addEventListener("click", () => { layer = l; heads = new Set([h]); draw(); });
      place.append(button);
      if (label === focused) button.focus();
    }
  }
}

function drawControls() {
  const found = data[kind];
  $("shown").textContent = shownInWords();
  $("about").textContent = KINDS[kind].about;
  $("status").textContent = "";
  $("kind").value = kind;
  $("layer").replaceChildren(...Array.from({ length: found.layers }, (_, l) => element("option", { value: l }, l + 1)));
  $("layer").value = layer;
  const focused = document.activeElement?.dataset?.head;
  $("heads").replaceChildren("head", ...Array.from({ length: found.heads }, (_, h) => {
    const button = element("button", { style: `--key:${colour(h)}`, "aria-pressed": heads.has(h), "data-head": h, title: "With Ctrl or Shift, several heads" }, h + 1);
    button.addEventListener("click", event => {
      if (!(event.ctrlKey || event.shiftKey || event.metaKey)) heads = new Set([h]);
      else if (!heads.has(h)) heads.add(h);
      else if (heads.size > 1) heads.delete(h);
      draw();
    });
    return button;
  }));
  if (focused !== undefined) document.querySelector(`[data-head="${focused}"]`)?.focus();
}

function draw() {
  chosen = null;
  drawControls(); drawSentences(); drawMatrix(); drawOverview(); drawLines();
}

// The matrix as an SVG picture with its title, both sides, all labels and the colour scale.
function asSvg() {
  const found = data[kind], cell = 22, longest = pieces => 30 + 7.5 * Math.max(...pieces.map(piece => piece.length));
  const left = longest(found.queries) + 20, top = longest(found.keys) + 60, right = left + cell * found.keys.length, bottom = top + cell * found.queries.length;
  const W = Math.max(right + 20, left + 320), H = bottom + 46;
  const text = (x, y, string, more = {}) => element("text", { x, y, fill: style("--text"), ...more }, string);
  const svg = element("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${W} ${H}`, width: W, height: H, "font-family": "sans-serif", "font-size": 12 },
    element("rect", { width: W, height: H, fill: style("--page") }), text(16, 24, shownInWords(), { "font-size": 15, "font-weight": "bold" }),
    text(left, 46, KINDS[kind].key), text(16, top + 10, KINDS[kind].query, { transform: `rotate(90 16 ${top})` }));
  found.keys.forEach((piece, k) => { const x = left + cell * k + 15; svg.append(text(x, top - 6, piece, { transform: `rotate(-90 ${x} ${top - 6})` })); });
  found.queries.forEach((piece, n) => {
    svg.append(text(left - 6, top + cell * n + 15, piece, { "text-anchor": "end" }));
    found.keys.forEach((_, k) => svg.append(element("rect", { x: left + cell * k, y: top + cell * n, width: cell - 1, height: cell - 1, fill: shade(), "fill-opacity": mean(n, k).toFixed(3) })));
  });
  for (let i = 0; i <= 10; i++) svg.append(element("rect", { x: left + 70 + 16 * i, y: bottom + 16, width: 16, height: 12, fill: shade(), "fill-opacity": i / 10 }));
  svg.append(text(left, bottom + 26, "weight 0"), text(left + 252, bottom + 26, "1"));
  return svg;
}

$("kind").append(...Object.entries(KINDS).map(([name, { name: label }]) => element("option", { value: name }, label)));
$("kind").addEventListener("change", event => { kind = event.target.value; layer = Math.min(layer, data[kind].layers - 1); heads = new Set([0]); draw(); });
$("layer").addEventListener("change", event => { layer = +event.target.value; draw(); });
$("all").addEventListener("click", () => { heads = new Set(Array.from({ length: data[kind].heads }, (_, h) => h)); draw(); });
$("save").addEventListener("click", () => saveSvg(`attention-${kind}-layer-${layer + 1}.svg`, asSvg()));
$("cells").addEventListener("pointermove", event => { const at = cellAt(event); if (at) { choose(at[0]); say(...at); } });
$("cells").addEventListener("pointerleave", () => choose(null));
onColourChange(draw);
draw();
