"use strict";
// The edge table: search, sort, download. It shows a first part of long tables, because ten thousand rows help nobody.
(() => {
  const { data, EDGE } = report, $ = id => document.getElementById(id);
  const FIRST_ROWS = 200;
  const columns = [
    { key: "source", title: "Source", value: e => data.variables[e[EDGE.source]], kind: "text" },
    { key: "target", title: "Target", value: e => data.variables[e[EDGE.target]], kind: "text" },
    { key: "lag", title: "Lag", value: e => e[EDGE.lag], kind: "num" },
    { key: "weight", title: "Weight", value: e => e[EDGE.weight], kind: "num", signed: true },
    { key: "standardised", title: "In sd", value: e => e[EDGE.standardised], kind: "num", signed: true },
  ];
  if (!data.is_linear) columns.push({ key: "shape", title: data.kinds.length ? "Scale" : "Shape", value: e => e[EDGE.shape] ?? "linear", kind: "text" });
  if (data.has_interval) {
    columns.push({ key: "ci_low", title: "Low", value: e => e[EDGE.low], kind: "num", signed: true });
    columns.push({ key: "ci_high", title: "High", value: e => e[EDGE.high], kind: "num", signed: true });
  }
  // Where link and direction are known apart, their product would hide how sure a link is.
  if (data.has_probability && !data.has_presence) columns.push({ key: "probability", title: "Probability", value: e => e[EDGE.probability], kind: "num", share: true });
  if (data.has_presence) {
    columns.push({ key: "presence", title: "Link", value: e => e[EDGE.presence], kind: "num", share: true });
    columns.push({ key: "direction", title: "Direction", value: e => e[EDGE.direction], kind: "num", share: true });
  }
  if (data.has_q) columns.push({ key: "q_value", title: "q-value", value: e => e[EDGE.q], kind: "num" });
  if (data.has_open) columns.push({ key: "oriented", title: "Direction known", value: e => e[EDGE.oriented] ? "yes" : "no", kind: "text" });
  if (data.has_hidden) {
    columns.push({ key: "robustness", title: "Robustness", value: e => e[EDGE.robustness], kind: "num", share: true });
    columns.push({ key: "could_be_hidden", title: "Could be hidden", value: e => e[EDGE.hidden] === null ? "not known" : e[EDGE.hidden] ? "yes" : "no", kind: "text" });
  }
  if (data.has_truth) columns.push({ key: "truth", title: "Truth", value: e => e[EDGE.truth] || "", kind: "text" });
  const state = { sort: columns.findIndex(c => c.key === "standardised"), down: true, all: false };
  const head = $("table").tHead, body = $("table").tBodies[0];

  const row = document.createElement("tr");
  columns.forEach((column, k) => {
    const th = document.createElement("th"), button = document.createElement("button");
    th.scope = "col"; if (column.kind === "num") th.className = "num";
    button.type = "button"; button.textContent = column.title;
    button.addEventListener("click", () => {
      // Numbers are looked at from the largest, names from A.
      state.down = state.sort === k ? !state.down : column.kind === "num" && column.key !== "lag";
      state.sort = k;
      fill();
    });
    th.appendChild(button); row.appendChild(th);
  });
  head.appendChild(row);

  function selected() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let rows = report.edges();
    if ($("same-filters").checked) rows = rows.filter(report.passes);
    if (words.length) rows = rows.filter(e => {
      const text = [data.variables[e[EDGE.source]], data.variables[e[EDGE.target]], "lag" + e[EDGE.lag], e[EDGE.truth] || ""].join(" ").toLowerCase();
      return words.every(w => text.includes(w));
    });
    const { value, kind, signed } = columns[state.sort];
    const order = signed ? e => Math.abs(value(e)) : value;
    const collator = new Intl.Collator("en", { numeric: true });
    const compare = kind === "text" ? (a, b) => collator.compare(value(a), value(b)) : (a, b) => (order(a) ?? -Infinity) - (order(b) ?? -Infinity);
    return rows.slice().sort((a, b) => (state.down ? -1 : 1) * compare(a, b));
  }

  function fill() {
    [...head.rows[0].cells].forEach((th, k) => {
      if (k === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending"); else th.removeAttribute("aria-sort");
    });
    const rows = selected(), shown = state.all ? rows : rows.slice(0, FIRST_ROWS), fragment = document.createDocumentFragment();
    for (const e of shown) {
      const tr = document.createElement("tr");
      for (const column of columns) {
        const td = document.createElement("td"), value = column.value(e);
        td.textContent = column.signed ? report.number(value) : value === null ? "–" : column.share ? value.toFixed(2) : value;
        if (column.kind === "num") td.className = "num" + (column.key === "weight" ? " " + report.way(e) : "");
        tr.appendChild(td);
      }
      fragment.appendChild(tr);
    }
    body.replaceChildren(fragment);
    $("more").hidden = shown.length === rows.length;
    $("more").textContent = `Show all ${rows.length} rows`;
    $("found").textContent = rows.length === shown.length ? `${rows.length} edge${rows.length === 1 ? "" : "s"}.` : `The first ${shown.length} of ${rows.length} edges.`;
  }

  function csv() {
    const quoted = value => {
      // Names come from other people: a spreadsheet must not take them for formulas (as model/csv_cells.py does).
      const guard = typeof value === "string" && /^'*[=+\-@\t\r\n\0＝＋－＠]/.test(value) ? "'" : "";
      const text = value === null ? "" : guard + String(value);
      return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    };
    return [columns.map(c => c.key), ...selected().map(e => columns.map(c => c.value(e)))].map(r => r.map(quoted).join(",")).join("\r\n") + "\r\n";
  }

  $("search").addEventListener("input", () => { state.all = false; fill(); });
  $("same-filters").addEventListener("change", fill);
  $("more").addEventListener("click", () => { state.all = true; fill(); });
  $("csv").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = "edges.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  addEventListener("beforeprint", () => {
    state.all = true;
    document.querySelectorAll("details").forEach(part => { part.open = true; });
    fill();
  });
  report.onDraw(fill);
  report.setUp();
})();
