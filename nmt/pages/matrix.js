// The matrix of the chosen heads, the lines, and the small pictures of all heads.
const shade = () => (heads.size === 1 ? colour([...heads][0]) : style("--accent"));
// On paper, the matrix must be as wide as the page.
const cellSize = () =>
  document.documentElement.classList.contains("printing")
    ? Math.max(4, Math.min(24, 500 / kinds[kind].keys.length))
    : Math.max(kinds[kind].keys.length, kinds[kind].queries.length) > 30
      ? 16
      : 24;

// A colour between the page's and the shade of the heads, as the colour scale shows it.
function mixed(weight) {
  return `color-mix(in srgb, ${shade()} ${(100 * weight).toFixed(1)}%, ${style("--page")})`;
}

function drawMatrix() {
  const attention = kinds[kind],
    cell = cellSize(),
    ratio = devicePixelRatio,
    canvas = $("cells");
  $("matrix").style.setProperty("--cell", `${cell}px`);
  $("scale").style.setProperty("--shade", shade());
  $("columns").replaceChildren(...attention.keys.map(piece => element("span", {}, piece)));
  $("rows").replaceChildren(
    ...attention.queries.map((piece, n) => {
      const made = element("button", { "data-row": n }, piece);
      for (const event of ["focus", "click"]) made.addEventListener(event, () => choose(n));
      return made;
    }),
  );
  canvas.width = cell * attention.keys.length * ratio;
  canvas.height = cell * attention.queries.length * ratio;
  canvas.style.width = `${cell * attention.keys.length}px`;
  canvas.style.height = `${cell * attention.queries.length}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  attention.queries.forEach((_, n) =>
    attention.keys.forEach((_, k) => {
      context.fillStyle = mixed(mean(n, k));
      context.fillRect(cell * k, cell * n, cell - 1, cell - 1);
    }),
  );
  markRow();
}

function markRow() {
  for (const row of $("rows").children) row.classList.toggle("chosen", +row.dataset.row === chosen);
}

function cellAt(event) {
  const box = $("cells").getBoundingClientRect(),
    cell = cellSize(),
    attention = kinds[kind];
  const [k, n] = [Math.floor((event.clientX - box.left) / cell), Math.floor((event.clientY - box.top) / cell)];
  return n >= 0 && k >= 0 && n < attention.queries.length && k < attention.keys.length ? [n, k] : null;
}

function drawLines() {
  const attention = kinds[kind],
    row = 22,
    column = 150,
    gap = 240,
    width = 2 * column + gap;
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${row * Math.max(attention.queries.length, attention.keys.length) + 10}`,
    width,
  });
  const y = i => row * i + row / 2 + 5;
  attention.queries.forEach((_, n) =>
    attention.keys.forEach((_, k) => {
      if (chosen !== null && chosen !== n) return;
      for (const h of heads) {
        const w = weight(attention, layer, h, n, k);
        if (w >= 0.01)
          svg.append(
            element("line", {
              x1: column,
              x2: column + gap,
              y1: y(n),
              y2: y(k),
              stroke: colour(h),
              "stroke-width": 2.4,
              "stroke-opacity": w,
            }),
          );
      }
    }),
  );
  attention.queries.forEach((piece, n) => {
    const made = element(
      "text",
      { x: column - 8, y: y(n) + 4, "text-anchor": "end", class: chosen !== null && chosen !== n ? "dim" : "" },
      piece,
    );
    made.addEventListener("pointerenter", () => choose(n));
    svg.append(made);
  });
  attention.keys.forEach((piece, k) => svg.append(element("text", { x: column + gap + 8, y: y(k) + 4 }, piece)));
  svg.addEventListener("pointerleave", () => choose(null));
  $("lines").replaceChildren(svg);
}

function drawOverview() {
  const attention = kinds[kind],
    place = $("overview"),
    [rows, columns] = [attention.queries.length, attention.keys.length];
  const rgb = style("--accent")
      .match(/[0-9a-f]{2}/gi)
      .map(x => parseInt(x, 16)),
    focused = document.activeElement?.ariaLabel;
  place.style.gridTemplateColumns = `max-content repeat(${attention.heads}, minmax(0, 64px))`;
  place.replaceChildren(
    element("span"),
    ...Array.from({ length: attention.heads }, (_, h) =>
      element("span", { class: "muted", style: "text-align:center" }, h + 1),
    ),
  );
  for (let l = 0; l < attention.layers; l++) {
    place.append(element("span", { class: "muted" }, l + 1));
    for (let h = 0; h < attention.heads; h++) {
      const canvas = element("canvas", { width: columns, height: rows }),
        image = new ImageData(columns, rows);
      for (let n = 0; n < rows; n++)
        for (let k = 0; k < columns; k++)
          image.data.set([...rgb, 255 * weight(attention, l, h, n, k)], 4 * (n * columns + k));
      canvas.getContext("2d").putImageData(image, 0, 0);
      const label = `layer ${l + 1}, head ${h + 1}`;
      const button = element(
        "button",
        { "aria-label": label, title: label, "aria-pressed": l === layer && heads.has(h) },
        canvas,
      );
      button.addEventListener("click", () => {
        layer = l;
        heads = new Set([h]);
        draw();
      });
      place.append(button);
      if (label === focused) button.focus();
    }
  }
}

// The matrix as an SVG picture with its title, both sides, all labels and the colour scale.
function asSvg() {
  const attention = kinds[kind],
    cell = 22,
    longest = pieces => 30 + 7.5 * Math.max(...pieces.map(piece => piece.length));
  const left = longest(attention.queries) + 20,
    top = longest(attention.keys) + 60,
    right = left + cell * attention.keys.length,
    bottom = top + cell * attention.queries.length;
  const W = Math.max(right + 20, left + 320),
    H = bottom + 46;
  const svg = picture(
    W,
    H,
    svgText(16, 24, shownInWords(), { "font-size": 15, "font-weight": "bold" }),
    svgText(left, 46, attention.key_side),
    svgText(16, top + 10, attention.query_side, { transform: `rotate(90 16 ${top})` }),
  );
  attention.keys.forEach((piece, k) => {
    const x = left + cell * k + 15;
    svg.append(svgText(x, top - 6, piece, { transform: `rotate(-90 ${x} ${top - 6})` }));
  });
  attention.queries.forEach((piece, n) => {
    svg.append(svgText(left - 6, top + cell * n + 15, piece, { "text-anchor": "end" }));
    attention.keys.forEach((_, k) =>
      svg.append(
        element("rect", {
          x: left + cell * k,
          y: top + cell * n,
          width: cell - 1,
          height: cell - 1,
          fill: shade(),
          "fill-opacity": mean(n, k).toFixed(3),
        }),
      ),
    );
  });
  for (let i = 0; i <= 10; i++)
    svg.append(
      element("rect", {
        x: left + 70 + 16 * i,
        y: bottom + 16,
        width: 16,
        height: 12,
        fill: shade(),
        "fill-opacity": i / 10,
      }),
    );
  svg.append(svgText(left, bottom + 26, "weight 0"), svgText(left + 252, bottom + 26, "1"));
  return svg;
}
