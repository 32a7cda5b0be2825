// Charts as SVG pictures, with the ranges and the ticks that the page shows.
function asSvg(chart) {
  const W = 820, H = 420, left = 72, right = 24, top = 44, bottom = 62;
  const { spec, lines, range, log } = chart, [x0, x1] = xRange(), scale = log ? Math.log10 : y => y;
  const X = x => left + (x - x0) / (x1 - x0) * (W - left - right);
  const Y = y => H - bottom - (scale(y) - scale(range[0])) / (scale(range[1]) - scale(range[0])) * (H - top - bottom);
  const text = (x, y, string, more = {}) => element("text", { x, y, fill: style("--text"), ...more }, string);
  const svg = element("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${W} ${H}`, width: W, height: H, "font-family": "sans-serif", "font-size": 12 },
    element("rect", { width: W, height: H, fill: style("--page") }), text(left, 24, spec.unit ? `${spec.title} (${spec.unit})` : spec.title, { "font-size": 15, "font-weight": "bold" }));
  for (const tick of yTicks(log, ...range)) svg.append(
    element("line", { x1: left, x2: W - right, y1: Y(tick), y2: Y(tick), stroke: style("--line") }), text(left - 8, Y(tick) + 4, short(tick), { "text-anchor": "end" }));
  for (const tick of xTicks(x0, x1, W - left - right)) svg.append(text(X(tick), H - bottom + 18, view.x === "update" ? short(tick) : clock(tick), { "text-anchor": "middle" }));
  for (const line of lines) for (const ys of [line.ys, line.smooth].filter(Boolean)) svg.append(element("path", {
    d: pathOf(line.xs, ys, X, Y, range), fill: "none", stroke: colour(line.run.number), "stroke-width": 1.6,
    "stroke-opacity": line.smooth && ys === line.ys ? 0.3 : 1, "stroke-dasharray": line.kind === "valid" ? "6 3" : "none" }));
  let x = left;
  for (const line of lines) {
    const label = `${line.run.name}, ${SERIES_NAMES[line.kind]}`;
    svg.append(element("line", { x1: x, x2: x + 22, y1: H - 18, y2: H - 18, stroke: colour(line.run.number), "stroke-width": 2,
      "stroke-dasharray": line.kind === "valid" ? "6 3" : "none" }), text(x + 28, H - 14, label));
    x += 50 + 7 * label.length;
  }
  return svg;
}

// The path of a line between the edges of the chart. A value that is not shown interrupts it.
function pathOf(xs, ys, X, Y, range) {
  let path = "", open = false;
  ys.forEach((y, i) => {
    if (y === null || !inView(xs[i]) || y > range[1] || y < range[0]) { open = false; return; }
    path += `${open ? "L" : "M"}${X(xs[i]).toFixed(1)} ${Y(y).toFixed(1)}`;
    open = true;
  });
  return path;
}
