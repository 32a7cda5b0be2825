// The attention weights of a sentence pair: one kind, one layer, and one or several heads at a time.
const { kinds, shown } = data;
const WORD_START = "▁";
for (const attention of Object.values(kinds)) {
  const bytes = Uint8Array.from(atob(attention.weights), c => c.charCodeAt(0)),
    view = new DataView(bytes.buffer);
  attention.weights = Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}
let { kind } = shown,
  layer = shown.layer - 1,
  heads = new Set([shown.head - 1]),
  chosen = null;

function weight(attention, l, h, n, k) {
  return attention.weights[((l * attention.heads + h) * attention.queries.length + n) * attention.keys.length + k];
}

function mean(n, k) {
  let sum = 0;
  for (const h of heads) sum += weight(kinds[kind], layer, h, n, k);
  return sum / heads.size;
}

const headsInWords = () =>
  heads.size === 1
    ? `head ${[...heads][0] + 1}`
    : `mean of the heads ${[...heads]
        .map(h => h + 1)
        .sort((a, b) => a - b)
        .join(", ")}`;
const shownInWords = () => `${kinds[kind].name}, layer ${layer + 1}, ${headsInWords()}`;

function say(n, k) {
  const attention = kinds[kind],
    each =
      heads.size > 1
        ? ` (${[...heads].map(h => `head ${h + 1}: ${weight(attention, layer, h, n, k).toFixed(3)}`).join(", ")})`
        : "";
  $("status").textContent = `${attention.queries[n]} → ${attention.keys[k]}: ${mean(n, k).toFixed(3)}${each}`;
}

// Chooses a query, whose weights the sentences and the lines then show; null shows all.
function choose(n) {
  if (chosen === n) return;
  chosen = n;
  drawSentences();
  drawLines();
  markRow();
  const attention = kinds[kind];
  if (n !== null)
    say(
      n,
      attention.keys.reduce((best, _, k) => (mean(n, k) > mean(n, best) ? k : best), 0),
    );
}

function drawSentences() {
  const attention = kinds[kind];
  $("query-name").textContent = attention.query_side;
  $("key-name").textContent = attention.key_side;
  const text = piece => (piece.startsWith(WORD_START) ? ` ${piece.slice(1)}` : piece);
  const focused = document.activeElement?.dataset?.query;
  $("query").replaceChildren(
    ...attention.queries.map((piece, n) => {
      const made = element("button", { class: n === chosen ? "chosen" : "", "data-query": n }, text(piece));
      for (const event of ["pointerenter", "focus", "click"]) made.addEventListener(event, () => choose(n));
      return made;
    }),
  );
  if (focused !== undefined) document.querySelector(`[data-query="${focused}"]`)?.focus();
  $("key").replaceChildren(
    ...attention.keys.map((piece, k) =>
      element(
        "span",
        chosen === null
          ? { style: "white-space:pre-wrap" }
          : {
              style: `white-space:pre-wrap;border-radius:4px;padding:2px 0;background:${mixed(mean(chosen, k) * 0.6)}`,
            },
        text(piece),
      ),
    ),
  );
}

function drawControls() {
  const attention = kinds[kind];
  $("shown").textContent = shownInWords();
  $("about").textContent = attention.about;
  $("status").textContent = "";
  $("kind").value = kind;
  $("layer").replaceChildren(...Array.from({ length: attention.layers }, (_, l) => element("option", { value: l }, l + 1)));
  $("layer").value = layer;
  const focused = document.activeElement?.dataset?.head;
  $("heads").replaceChildren(
    "head",
    ...Array.from({ length: attention.heads }, (_, h) => {
      const button = element(
        "button",
        {
          style: `--key:${colour(h)}`,
          "aria-pressed": heads.has(h),
          "data-head": h,
          title: "With Ctrl or Shift, several heads",
        },
        h + 1,
      );
      button.addEventListener("click", event => {
        if (!(event.ctrlKey || event.shiftKey || event.metaKey)) heads = new Set([h]);
        else if (!heads.has(h)) heads.add(h);
        else if (heads.size > 1) heads.delete(h);
        draw();
      });
      return button;
    }),
  );
  if (focused !== undefined) document.querySelector(`[data-head="${focused}"]`)?.focus();
}

function draw() {
  chosen = null;
  drawControls();
  drawSentences();
  drawMatrix();
  drawOverview();
  drawLines();
}

$("kind").append(...Object.entries(kinds).map(([name, { name: label }]) => element("option", { value: name }, label)));
$("kind").addEventListener("change", event => {
  kind = event.target.value;
  layer = Math.min(layer, kinds[kind].layers - 1);
  heads = new Set([0]);
  draw();
});
$("layer").addEventListener("change", event => {
  layer = +event.target.value;
  draw();
});
$("all").addEventListener("click", () => {
  heads = new Set(Array.from({ length: kinds[kind].heads }, (_, h) => h));
  draw();
});
$("save").addEventListener("click", () => saveSvg(`attention-${kind}-layer-${layer + 1}.svg`, asSvg()));
$("cells").addEventListener("pointermove", event => {
  const at = cellAt(event);
  if (at) {
    choose(at[0]);
    say(...at);
  }
});
$("cells").addEventListener("pointerleave", () => choose(null));
onColourChange(draw);
draw();
