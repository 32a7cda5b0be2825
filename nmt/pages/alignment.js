const DOUBTFUL = 0.5, DECIDED = 1, ROWS = 200;
const documents = data.alignments.map(([source, target, beads, failure]) => ({ source, target, beads, failure }));
let shown = ROWS, isSaved = true;

const chosen = () => documents[$("document").value];
const isPaired = ([s, sStop, t, tStop]) => sStop > s && tStop > t;

// Replaces beads of the document that is shown.
function change(first, count, ...beads) {
  chosen().beads.splice(first, count, ...beads);
  isSaved = false;
  draw();
}

function join(i) {
  const [[s, , t], [, sStop, , tStop]] = chosen().beads.slice(i, i + 2);
  change(i, 2, [s, sStop, t, tStop, DECIDED]);
}

function split(i) {
  const [s, sStop, t, tStop] = chosen().beads[i];
  const parts = [];
  for (let k = 0; k < Math.max(sStop - s, tStop - t); k++) {
    const [a, b] = [Math.min(s + k, sStop), Math.min(t + k, tStop)];
    parts.push([a, Math.min(a + 1, sStop), b, Math.min(b + 1, tStop), DECIDED]);
  }
  change(i, 1, ...parts);
}

function drop(i) {
  const [s, sStop, t, tStop] = chosen().beads[i];
  change(i, 1, [s, sStop, t, t, DECIDED], [sStop, sStop, t, tStop, DECIDED]);
}

function side([, texts, places], start, stop, language) {
  const label = stop > start ? `${places[start]}${stop > start + 1 ? `–${places[stop - 1]}` : ""}` : "";
  const place = element("span", { class: "muted" }, `${label} `);
  return element("p", { lang: language, dir: "auto" }, place, texts.slice(start, stop).join(" ") || "–");
}

function row(i) {
  const { source, target, beads } = chosen();
  const [s, sStop, t, tStop, score] = beads[i];
  const tool = (name, action, enabled) => {
    const button = element("button", enabled ? {} : { disabled: "" }, name);
    button.addEventListener("click", () => action(i));
    return button;
  };
  const paired = isPaired(beads[i]);
  const kind = score === DECIDED ? "decided" : paired && score < DOUBTFUL ? "doubtful" : "";
  return element(
    "div",
    { class: `pair ${kind}` },
    element("b", {}, paired ? score.toFixed(2) : "alone"),
    side(source, s, sStop, data.languages[0]),
    side(target, t, tStop, data.languages[1]),
    element(
      "div",
      { class: "tools no-print" },
      tool("Join with next", join, i + 1 < beads.length),
      tool("Split", split, paired && sStop - s + tStop - t > 2),
      tool("Drop", drop, paired),
    ),
  );
}

function draw() {
  const { beads, failure } = chosen();
  const order = [...beads.keys()];
  // Pairs before what is alone, and the worst first; what is decided comes last.
  const rank = i => (isPaired(beads[i]) ? 0 : 1) + beads[i][4] + (beads[i][4] === DECIDED ? 2 : 0);
  if ($("order").value === "doubtful") order.sort((i, j) => rank(i) - rank(j) || i - j);
  const paired = beads.filter(isPaired), doubtful = paired.filter(bead => bead[4] < DOUBTFUL);
  $("total").textContent = failure || `${paired.length} pairs, of which ${doubtful.length} are doubtful; ` +
    `${beads.length - paired.length} places have no partner.`;
  $("pairs").replaceChildren(...order.slice(0, shown).map(row));
  $("more").hidden = shown >= order.length;
}

documents.forEach(({ source, target }, i) =>
  $("document").append(element("option", { value: i }, `${source[0]} – ${target[0]}`)));
$("documents").hidden = documents.length < 2;
for (const name of ["order", "document"]) $(name).addEventListener("change", () => { shown = ROWS; draw(); });
$("more").addEventListener("click", () => { shown += ROWS; draw(); });
$("save").addEventListener("click", () => {
  const decided = documents.filter(({ failure }) => !failure);
  const decisions = decided.map(({ source, target, beads }) => [source.slice(0, 2), target.slice(0, 2), beads]);
  save("decisions.json", "application/json", JSON.stringify(decisions));
  isSaved = true;
});
addEventListener("beforeunload", event => { if (!isSaved) event.preventDefault(); }); // the browser asks first
draw();
