// Fills a table with rows, of which the first is the head.
function drawTable(table, rows, isNumber) {
  const [head, ...body] = rows;
  table.replaceChildren(
    element("tr", {}, ...head.map((cell, i) => element("th", { class: isNumber(i) ? "number" : "" }, cell))),
    ...body.map(row =>
      element(
        "tr",
        {},
        ...row.map((cell, i) =>
          element("td", { class: isNumber(i) ? "number" : "", "data-label": i ? head[i] : "" }, cell),
        ),
      ),
    ),
  );
}
