// Charts as SVG pictures, with the ranges and the ticks that the page shows.
function asSvg(chart) {
  const W = 820,
    left = 72,
    right = 24,
    top = 44,
    plotHeight = 314,
    rowHeight = 20;
  const { spec, lines, range, isLog } = chart,
    [x0, x1] = xRange(),
    scale = isLog ? Math.log10 : y => y;
  const bottom = top + plotHeight,
    plotWidth = W - left - right,
    labels = legendPlaces(lines, left, W - right);
  const X = x => left + ((x - x0) / (x1 - x0)) * plotWidth;
  const Y = y => bottom - ((scale(y) - scale(range[0])) / (scale(range[1]) - scale(range[0]))) * plotHeight;
  const H = bottom + 44 + rowHeight * (1 + Math.max(0, ...labels.map(label => label.row)));
  const title = spec.unit ? `${spec.title} (${spec.unit})` : spec.title;
  const svg = picture(W, H, svgText(left, 24, title, { "font-size": 15, "font-weight": "bold" }));
  for (const tick of yTicks(isLog, ...range))
    svg.append(
      element("line", { x1: left, x2: W - right, y1: Y(tick), y2: Y(tick), stroke: style("--line") }),
      svgText(left - 8, Y(tick) + 4, short(tick), { "text-anchor": "end" }),
    );
  for (const tick of xTicks(x0, x1, plotWidth))
    svg.append(
      svgText(X(tick), bottom + 18, view.x === "update" ? short(tick) : clock(tick), { "text-anchor": "middle" }),
    );
  // An inner SVG hides what lies outside the axes.
  const plot = element("svg", {
    x: left,
    y: top,
    width: plotWidth,
    height: plotHeight,
    viewBox: `${left} ${top} ${plotWidth} ${plotHeight}`,
  });
  for (const line of lines) {
    const paint = { stroke: colour(line.colourIndex), "stroke-dasharray": line.kind === "valid" ? "6 3" : "none" };
    for (const ys of [line.ys, line.smooth].filter(Boolean))
      plot.append(
        element("path", {
          d: pathOf(line.xs, ys, X, Y),
          fill: "none",
          "stroke-width": 1.6,
          "stroke-opacity": line.smooth && ys === line.ys ? 0.3 : 1,
          ...paint,
        }),
      );
    for (const x of offScale(line, range[1], X, 8))
      plot.append(element("path", { d: `M${x} ${top}l-4 7h8z`, fill: paint.stroke }));
  }
  svg.append(plot);
  labels.forEach(({ x, row, label }, i) =>
    svg.append(
      element("line", {
        x1: x,
        x2: x + 22,
        y1: bottom + 44 + rowHeight * row,
        y2: bottom + 44 + rowHeight * row,
        stroke: colour(lines[i].colourIndex),
        "stroke-width": 2,
        "stroke-dasharray": lines[i].kind === "valid" ? "6 3" : "none",
      }),
      svgText(x + 28, bottom + 48 + rowHeight * row, label),
    ),
  );
  return svg;
}

// Where the names of the lines stand below the chart, in as many rows as they need.
function legendPlaces(lines, left, right) {
  let x = left,
    row = 0;
  return lines.map(line => {
    const label = `${line.name}, ${SERIES_NAMES[line.kind]}`,
      width = 50 + 7 * label.length;
    if (x > left && x + width > right) {
      x = left;
      row++;
    }
    const place = { x, row, label };
    x += width;
    return place;
  });
}

// The path of a line. A missing value interrupts it.
function pathOf(xs, ys, X, Y) {
  let path = "",
    open = false;
  ys.forEach((y, i) => {
    if (y === null) {
      open = false;
      return;
    }
    path += `${open ? "L" : "M"}${X(xs[i]).toFixed(1)} ${Y(y).toFixed(1)}`;
    open = true;
  });
  return path;
}
