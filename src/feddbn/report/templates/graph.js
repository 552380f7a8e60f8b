"use strict";
// The graph: state -> draw. Positions come from Python in the unit square; everything on screen is in CSS pixels, so text
// keeps its size at any width. `report` is the only global; the table reads the filters through it.
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = id => document.getElementById(id);
  const NS = "http://www.w3.org/2000/svg";
  const svg = $("picture"), tip = $("tip"), panel = $("panel");
  const names = data.variables, d = names.length;
  const EDGE = { source: 0, target: 1, lag: 2, weight: 3, probability: 4, low: 5, high: 6, truth: 7, standardised: 8, oriented: 9, presence: 10, direction: 11, robustness: 12, hidden: 13, q: 14, shape: 15, signed: 16 };
  const MOST_AT_START = 400;  // More arrows than this cannot be told apart; the weight filter starts where they fit.
  const listeners = [];
  const state = { network: 0, lags: new Set(), weight: 0, probability: 0, standardised: true, hideLonely: false, chosen: null, zoom: 1, pan: [0, 0] };
  let moved = data.positions.map(p => p.slice()), size = [0, 0], nodes = [], arrows = [], drag = null;

  const make = (tag, attributes = {}, parent = null) => {
    const element = document.createElementNS(NS, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.appendChild(element);
    return element;
  };
  const html = (tag, text = "", parent = null, className = "") => {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    if (className) element.className = className;
    if (parent) parent.appendChild(element);
    return element;
  };
  const number = x => x === null ? "–" : (x > 0 ? "+" : x < 0 ? "−" : "") + (Math.abs(x) >= 0.0005 || x === 0 ? Math.abs(x).toFixed(3) : Math.abs(x).toExponential(1));
  // Signs of a network that the data do not tell are not shown.
  const sign = x => data.is_grey ? "both" : x < 0 ? "neg" : "pos";
  // An effect that goes both ways has no sign.
  const way = e => e[EDGE.signed] === 0 ? "both" : sign(e[EDGE.weight]);
  const when = lag => lag === 0 ? "same time step" : lag === 1 ? "1 step later" : lag + " steps later";
  const edges = () => data.networks[state.network].edges;
  // One weight in a large unit would hide all others, so arrows are compared in standard deviations unless asked otherwise.
  const strength = e => Math.abs(state.standardised && e[EDGE.standardised] !== null ? e[EDGE.standardised] : e[EDGE.weight]);
  // A link whose direction is open is sure or not whichever way it points.
  const certainty = e => (e[EDGE.oriented] ? e[EDGE.probability] : e[EDGE.presence]) ?? e[EDGE.probability];
  // What is less likely than not is not drawn at first, but where the data tell nothing, or a level of q decides.
  const AT_FIRST = data.has_probability && !data.has_q && !data.is_grey ? 0.5 : 0;
  const arrow = e => e[EDGE.oriented] ? "→" : "—";
  const passes = e => state.lags.has(e[EDGE.lag]) && strength(e) >= state.weight
    && (certainty(e) ?? 1) >= state.probability;
  const largest = () => edges().reduce((m, e) => Math.max(m, strength(e)), 0) || 1;
  const radius = () => Math.max(5, Math.min(12, Math.min(...size) / (6 * Math.sqrt(d))));

  // Names stand beside the nodes of a circle and need room; elsewhere they stand above them.
  const longest = Math.min(18, Math.max(...names.map(n => n.length)));
  const margins = () => [beside() ? 30 + 7 * longest : 34, 38];
  const beside = () => d <= 36 && size[0] >= 560;
  const place = i => {
    const pad = margins();
    return [0, 1].map(k => {
      const inner = size[k] - 2 * pad[k];
      return size[k] / 2 + state.pan[k] + (moved[i][k] - 0.5) * inner * state.zoom;
    });
  };
  const unplace = (x, y) => [x, y].map((v, k) => {
    const pad = margins();
    return 0.5 + (v - size[k] / 2 - state.pan[k]) / ((size[k] - 2 * pad[k]) * state.zoom);
  });

  function curve(e, both) {
    const [x0, y0] = place(e[EDGE.source]), [x1, y1] = place(e[EDGE.target]);
    const dx = x1 - x0, dy = y1 - y0, length = Math.hypot(dx, dy) || 1, r = radius();
    if (e[EDGE.lag] === 0) {
      const end = e[EDGE.oriented] ? r + 5 : r;
      const a = [x0 + dx / length * r, y0 + dy / length * r], b = [x1 - dx / length * end, y1 - dy / length * end];
      return { path: `M${a[0]} ${a[1]}L${b[0]} ${b[1]}`, label: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] };
    }
    // Bow towards the middle, where a circle has no nodes; later lags and the second of two opposite arrows bow more.
    const inward = (size[0] / 2 - (x0 + x1) / 2) * dy - (size[1] / 2 - (y0 + y1) / 2) * dx >= 0 ? 1 : -1;
    const bend = inward * (0.13 + 0.1 * (e[EDGE.lag] - 1) + (both ? 0.16 : 0));
    const c = [(x0 + x1) / 2 + bend * dy, (y0 + y1) / 2 - bend * dx];
    const towards = (from, to, by) => {
      const l = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
      return [from[0] + (to[0] - from[0]) / l * by, from[1] + (to[1] - from[1]) / l * by];
    };
    const a = towards([x0, y0], c, r), b = towards([x1, y1], c, r + 5);
    const at = s => [0, 1].map(k => (1 - s) ** 2 * a[k] + 2 * s * (1 - s) * c[k] + s * s * b[k]);
    return { path: `M${a[0]} ${a[1]}Q${c[0]} ${c[1]} ${b[0]} ${b[1]}`, label: at(0.56) };
  }

  function draw() {
    size = [svg.parentElement.clientWidth, Math.round(Math.max(340, Math.min(640, svg.parentElement.clientWidth * 0.8)))];
    svg.setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`);
    svg.style.height = size[1] + "px";
    const active = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.i : undefined;
    svg.replaceChildren();
    const defs = make("defs", {}, svg);
    for (const s of ["pos", "neg", "both"]) {
      const marker = make("marker", { id: "head-" + s, class: s, viewBox: "0 0 8 8", refX: 3, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, defs);
      make("path", { d: "M0 0.6L8 4L0 7.4Z" }, marker);
    }
    const shown = edges().filter(passes), between = shown.filter(e => e[EDGE.source] !== e[EDGE.target]);
    const own = new Map();
    for (const e of shown) if (e[EDGE.source] === e[EDGE.target] && Math.abs(e[EDGE.weight]) > Math.abs(own.get(e[EDGE.source]) || 0)) own.set(e[EDGE.source], e[EDGE.weight]);
    const degree = new Array(d).fill(0), pairs = new Set();
    for (const e of between) { degree[e[0]]++; degree[e[1]]++; if (e[EDGE.lag]) pairs.add(e[0] + "," + e[1]); }
    const top = largest(), edgeLayer = make("g", {}, svg), labelLayer = make("g", { "aria-hidden": "true" }, svg), nodeLayer = make("g", {}, svg);
    // Strong arrows last, so that they lie on top.
    arrows = between.slice().sort((a, b) => strength(a) - strength(b)).map(e => {
      const share = strength(e) / top, both = e[0] > e[1] && pairs.has(e[1] + "," + e[0]);
      const group = make("g", { class: "arrow", "data-lag": e[EDGE.lag] }, edgeLayer);
      const line = make("path", { class: "edge " + way(e), "stroke-width": (0.8 + 2.4 * share).toFixed(2), "stroke-opacity": (0.3 + 0.65 * share).toFixed(2) }, group);
      if (e[EDGE.oriented]) line.setAttribute("marker-end", `url(#head-${way(e)})`);
      else group.classList.add("open");
      const hit = make("path", { class: "hit" }, group);
      hit.addEventListener("pointerenter", event => { if (!drag) showTip(event, edgeText(e)); });
      hit.addEventListener("pointermove", event => { if (!drag) moveTip(event); });
      hit.addEventListener("pointerleave", hideTip);
      const label = e[EDGE.lag] > 0 && between.length <= 70 ? make("text", { class: "lag", "text-anchor": "middle", dy: "0.35em" }, labelLayer) : null;
      if (label) label.textContent = e[EDGE.lag];
      return { e, both, group, line, hit, label };
    });
    const r = radius();
    nodes = names.map((name, i) => {
      const lonely = degree[i] === 0 && !own.has(i);
      if (state.hideLonely && lonely && state.chosen !== i) return null;
      const group = make("g", { class: "node", role: "button", tabindex: "-1", "data-i": i, "aria-label": nodeText(i, shown, own.get(i)) }, nodeLayer);
      make("circle", { class: "base", r }, group);
      if (own.has(i)) make("circle", { class: "tint " + sign(own.get(i)), r: r - 0.6, "fill-opacity": Math.min(0.85, 0.12 + 0.75 * Math.abs(own.get(i))).toFixed(2) }, group);
      const text = make("text", { "text-anchor": "middle" }, group);
      text.textContent = name.length > 18 ? name.slice(0, 13) + "…" + name.slice(-4) : name;
      group.addEventListener("pointerdown", event => startDrag(event, i));
      group.addEventListener("pointerenter", event => { if (!drag) { highlight(i); showTip(event, nodeText(i, shown, own.get(i))); } });
      group.addEventListener("pointerleave", () => { if (!drag) { highlight(state.chosen); hideTip(); } });
      group.addEventListener("focus", () => highlight(i));
      group.addEventListener("blur", () => highlight(state.chosen));
      group.addEventListener("keydown", event => nodeKey(event, i));
      return { i, group, text, degree: degree[i] };
    });
    const present = nodes.filter(Boolean);
    const stop = present.find(n => n.i === state.chosen) || present[0];
    if (stop) stop.group.setAttribute("tabindex", "0");
    position();
    highlight(state.chosen);
    if (active !== undefined && nodes[active]) focusNode(Number(active));
    const total = edges().length;
    $("shown").textContent = total === 0 ? "This network has no edges; the diagnostics below say why."
      : `Showing ${shown.length} of ${total} edge${total === 1 ? "" : "s"}` + (present.length < d ? `, ${present.length} of ${d} variables.` : ".");
    listeners.forEach(f => f());
  }

  function position() {
    for (const a of arrows) {
      const c = curve(a.e, a.both);
      a.line.setAttribute("d", c.path); a.hit.setAttribute("d", c.path);
      if (a.label) { a.label.setAttribute("x", c.label[0]); a.label.setAttribute("y", c.label[1]); }
    }
    const r = radius(), taken = [];
    // Names that would collide give way to those of better connected variables; hovering or focus shows the rest.
    for (const n of nodes.filter(Boolean).sort((a, b) => b.degree - a.degree || a.i - b.i)) {
      const [x, y] = place(n.i);
      n.group.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      const dx = x - size[0] / 2, dy = y - size[1] / 2, wide = beside() && Math.abs(dx) > 1.1 * Math.abs(dy);
      const anchor = wide ? (dx > 0 ? "start" : "end") : "middle", up = dy <= 0 || d > 36;
      n.text.setAttribute("text-anchor", anchor);
      const w = n.text.textContent.length * 6.8 + 4;
      // A name above or below its node is pushed back onto the page.
      const shift = wide ? 0 : Math.max(0, w / 2 + 2 - x) - Math.max(0, x + w / 2 + 2 - size[0]);
      n.text.setAttribute("x", wide ? Math.sign(dx) * (r + 5) : shift);
      n.text.setAttribute("y", wide ? 4 : up ? -r - 5 : r + 15);
      const left = x + (wide ? (dx > 0 ? r + 5 : -r - 5 - w) : shift - w / 2), topEdge = y + (wide ? -7 : up ? -r - 17 : r + 3);
      const box = [left, topEdge, left + w, topEdge + 15];
      n.free = taken.every(t => box[2] < t[0] || box[0] > t[2] || box[3] < t[1] || box[1] > t[3]);
      if (n.free) taken.push(box);
      n.text.style.display = n.free ? "" : "none";
    }
  }

  function highlight(i) {
    const near = new Set([i]);
    for (const a of arrows) {
      const touches = i === null || a.e[0] === i || a.e[1] === i;
      if (touches && i !== null) { near.add(a.e[0]); near.add(a.e[1]); }
      a.group.classList.toggle("faded", !touches);
      if (a.label) a.label.classList.toggle("faded", !touches);
    }
    for (const n of nodes) {
      if (!n) continue;
      n.group.classList.toggle("faded", i !== null && !near.has(n.i));
      n.group.classList.toggle("chosen", n.i === state.chosen);
      n.text.style.display = n.free || (i !== null && near.has(n.i)) ? "" : "none";
    }
  }

  function edgeText(e) {
    const lines = [`${names[e[0]]} ${arrow(e)} ${names[e[1]]}`, `${when(e[EDGE.lag])}, weight ${number(e[EDGE.weight])}`];
    if (e[EDGE.standardised] !== null) lines.push(`${number(e[EDGE.standardised])} in standard deviations`);
    if (!data.is_linear) lines.push({ linear: "straight", curved: "curved: the weight is its average slope", product: "acts together with another cause" }[e[EDGE.shape] ?? "linear"] ?? `on the scale of the ${e[EDGE.shape]}${e[EDGE.signed] ? "" : ", several coefficients together"}`);
    if (!e[EDGE.oriented]) lines.push("direction not known");
    if (e[EDGE.low] !== null) lines.push(`interval ${number(e[EDGE.low])} to ${number(e[EDGE.high])}`);
    if (e[EDGE.presence] !== null) lines.push(`link ${e[EDGE.presence].toFixed(2)}` + (e[EDGE.lag] === 0 && e[EDGE.direction] !== null ? `, direction ${e[EDGE.direction].toFixed(2)}` : ""));
    else if (e[EDGE.probability] !== null) lines.push(`probability ${e[EDGE.probability].toFixed(2)}`);
    if (e[EDGE.hidden] === 1) lines.push("could be a hidden cause");
    else if (e[EDGE.robustness] !== null) lines.push(`a hidden cause would have to explain ${Math.round(100 * e[EDGE.robustness])} % of what is left of both`);
    if (e[EDGE.truth]) lines.push({ found: "true effect", extra: "not in the truth", reversed: "reversed in the truth" }[e[EDGE.truth]]);
    return lines.join("\n");
  }
  function nodeText(i, shown, self) {
    const directed = shown.filter(e => e[EDGE.oriented] && e[0] !== e[1]), links = shown.filter(e => !e[EDGE.oriented] && (e[0] === i || e[1] === i)).length;
    const causes = directed.filter(e => e[1] === i).length, effects = directed.filter(e => e[0] === i).length;
    return `${names[i]}${data.kinds.length ? ` (${data.kinds[i]})` : ""}: ${causes} cause${causes === 1 ? "" : "s"}, ${effects} effect${effects === 1 ? "" : "s"}` + (links ? `, ${links} link${links === 1 ? "" : "s"} without direction` : "") + (self === undefined ? "" : `\neffect on its own future ${number(self)}`);
  }
  function showTip(event, text) { tip.textContent = text; tip.hidden = false; moveTip(event); }
  function moveTip(event) {
    const box = svg.parentElement.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = Math.max(4, Math.min(x + 14, box.width - tip.offsetWidth - 6)) + "px";
    tip.style.top = (y + tip.offsetHeight + 24 > box.height ? y - tip.offsetHeight - 10 : y + 16) + "px";
  }
  function hideTip() { tip.hidden = true; }

  function startDrag(event, i) {
    event.preventDefault(); event.stopPropagation();
    hideTip();
    drag = { i, x: event.clientX, y: event.clientY, far: false };
    nodes[i].group.setPointerCapture(event.pointerId);
    nodes[i].group.onpointermove = e => {
      if (!drag) return;
      if (Math.hypot(e.clientX - drag.x, e.clientY - drag.y) > 4) drag.far = true;
      if (!drag.far) return;
      const box = svg.getBoundingClientRect();
      moved[i] = unplace(e.clientX - box.left, e.clientY - box.top);
      position();
    };
    nodes[i].group.onpointerup = nodes[i].group.onpointercancel = e => {
      const clicked = drag && !drag.far && e.type === "pointerup";
      drag = null;
      nodes[i].group.onpointermove = null;
      if (clicked) choose(state.chosen === i ? null : i, true);
    };
  }
  svg.addEventListener("pointerdown", event => {
    if (event.target !== svg) return;
    const from = [event.clientX, event.clientY], start = state.pan.slice();
    let far = false;
    if (event.pointerType !== "touch") svg.setPointerCapture(event.pointerId);
    svg.onpointermove = e => {
      if (Math.hypot(e.clientX - from[0], e.clientY - from[1]) > 4) far = true;
      if (far && e.pointerType !== "touch") { state.pan = [start[0] + e.clientX - from[0], start[1] + e.clientY - from[1]]; position(); }
    };
    svg.onpointerup = svg.onpointercancel = () => { svg.onpointermove = null; if (!far && state.chosen !== null) choose(null); };
  });

  function focusNode(i) {
    nodes.forEach(n => n && n.group.setAttribute("tabindex", n.i === i ? "0" : "-1"));
    nodes[i].group.focus({ preventScroll: true });
  }
  function nodeKey(event, i) {
    const present = nodes.filter(Boolean).map(n => n.i), at = present.indexOf(i);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) focusNode(present[(at + step + present.length) % present.length]);
    else if (event.key === "Home") focusNode(present[0]);
    else if (event.key === "End") focusNode(present[present.length - 1]);
    else if (event.key === "Enter" || event.key === " ") choose(state.chosen === i ? null : i);
    else if (event.key === "Escape") choose(null);
    else return;
    event.preventDefault();
  }

  function choose(i, takeFocus = false) {
    state.chosen = i;
    $("variable").value = i === null ? "" : String(i);
    if (i !== null && !nodes[i]) draw();
    highlight(i);
    if (i !== null && takeFocus) focusNode(i);
    describe();
  }

  function describe() {
    panel.replaceChildren();
    const i = state.chosen;
    panel.classList.toggle("idle", i === null);
    if (i === null) {
      html("h3", "No variable selected", panel);
      html("p", "Select a variable in the graph or in the list to see what causes it, what it causes and how a shock to it spreads.", panel, "note");
      return;
    }
    html("h3", names[i], panel);
    const shown = edges().filter(passes);
    const list = (title, rows, other, none) => {
      html("h4", `${title} (${rows.length})`, panel);
      if (!rows.length) { html("p", none, panel, "note"); return; }
      const ul = html("ul", "", panel);
      rows.sort((a, b) => strength(b) - strength(a)).forEach(e => {
        const j = other(e), li = html("li", "", ul), go = html("button", names[j], li);
        go.type = "button";
        go.addEventListener("click", () => choose(j));
        html("span", when(e[EDGE.lag]), li, "note").style.margin = "0";
        html("span", number(e[EDGE.weight]), li, "value");
      });
    };
    const self = shown.filter(e => e[0] === i && e[1] === i);
    if (self.length) html("p", "On its own future: " + self.map(e => `${number(e[EDGE.weight])} (${when(e[EDGE.lag])})`).join(", "), panel);
    const between = shown.filter(e => e[0] !== e[1]), directed = between.filter(e => e[EDGE.oriented]);
    const links = between.filter(e => !e[EDGE.oriented] && (e[0] === i || e[1] === i));
    list("Causes", directed.filter(e => e[1] === i), e => e[EDGE.source], "None shown.");
    list("Direct effects", directed.filter(e => e[0] === i), e => e[EDGE.target], "None shown.");
    if (links.length) list("Linked, direction not known", links, e => e[0] === i ? e[1] : e[0], "");
    const effects = data.networks[state.network].effects[i] || [];
    html("h4", data.is_linear ? "After a shock of one standard deviation" : data.kinds.length ? "After one time step a step above its usual value, or at its second level" : "After one moment a scale above its usual value", panel);
    if (!effects.length) { html("p", "Nothing else moves noticeably.", panel, "note"); return; }
    const ul = html("ul", "", panel);
    for (const [j, peak, step, values, low, high] of effects) {
      const li = html("li", "", ul), go = html("button", names[j], li);
      go.type = "button";
      go.addEventListener("click", () => choose(j));
      li.appendChild(spark(values, peak, low, high));
      html("span", `${number(peak)} ${step === 0 ? "at once" : "after " + step}`, li, "value");
    }
    html("p", `Strongest total responses over ${data.horizon} steps in standard deviations, through all paths of the whole network` + (effects[0].length > 4 ? "; grey: 90 % bands, given the edges found" : "") + (data.has_open ? ", along links without a direction as they were stored." : "."), panel, "note");
  }
  function spark(values, peak, low, high) {
    const picture = make("svg", { class: "spark", viewBox: "0 0 64 20", "aria-hidden": "true" });
    const top = Math.max(...[values, low || [], high || []].flat().map(Math.abs)) || 1;
    const at = (v, k) => `${(2 + 60 * k / (values.length - 1)).toFixed(1)} ${(10 - 8.5 * v / top).toFixed(1)}`;
    if (low) make("polygon", { points: [...low.map(at), ...high.map(at).reverse()].join(" ") }, picture);
    make("line", { x1: 0, x2: 64, y1: 10, y2: 10 }, picture);
    make("path", { class: sign(peak), d: values.map((v, k) => (k ? "L" : "M") + at(v, k)).join("") }, picture);
    return picture;
  }

  function setUp() {
    data.networks.forEach((n, k) => $("network").add(new Option(n.name, k)));
    $("network-control").hidden = data.networks.length < 2;
    names.map((name, i) => [name, i]).sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true })).forEach(([name, i]) => $("variable").add(new Option(name, i)));
    for (let lag = 0; lag <= data.n_lags; lag++) {
      state.lags.add(lag);
      const label = html("label", "", $("lags")), box = html("input", "", label);
      box.type = "checkbox"; box.checked = true; box.value = lag; box.name = "lag";
      label.append(lag === 0 ? "0 (contemporaneous)" : String(lag));
      box.addEventListener("change", () => { if (box.checked) state.lags.add(lag); else state.lags.delete(lag); redraw(); });
    }
    $("probability-control").hidden = !data.has_probability;
    $("min-probability").value = state.probability = AT_FIRST;
    $("open-legend").hidden = !data.has_open;
    $("both-legend").hidden = data.is_linear;
    $("grey-legend").hidden = !data.is_grey;
    document.querySelectorAll(".legend .signed").forEach(part => { part.hidden = data.is_grey; });
    if (data.kinds.length) $("both-legend").lastChild.textContent = "several levels";
    $("standardised").addEventListener("change", event => { state.standardised = event.target.checked; fitWeight(); redraw(); });
    $("network").addEventListener("change", event => { state.network = Number(event.target.value); fitWeight(); redraw(); });
    $("min-weight").addEventListener("input", event => { state.weight = Number(event.target.value); redraw(); });
    $("min-probability").addEventListener("input", event => { state.probability = Number(event.target.value); redraw(); });
    $("hide-lonely").addEventListener("change", event => { state.hideLonely = event.target.checked; redraw(); });
    $("variable").addEventListener("change", event => choose(event.target.value === "" ? null : Number(event.target.value)));
    $("zoom-in").addEventListener("click", () => zoom(1.35));
    $("zoom-out").addEventListener("click", () => zoom(1 / 1.35));
    $("reset").addEventListener("click", reset);
    fitWeight();
    redraw();
    let width = svg.parentElement.clientWidth;
    new ResizeObserver(() => { const now = svg.parentElement.clientWidth; if (now !== width) { width = now; draw(); } }).observe(svg.parentElement);
  }
  function fitWeight() {
    const sizes = edges().map(strength).sort((a, b) => b - a);
    $("min-weight").max = largest();
    state.weight = sizes.length > MOST_AT_START ? sizes[MOST_AT_START - 1] : 0;
    $("min-weight").value = state.weight;
  }
  function redraw() {
    $("min-weight-out").textContent = state.weight.toPrecision(2);
    $("min-probability-out").textContent = state.probability.toFixed(2);
    draw();
    describe();
  }
  function zoom(by) { state.zoom = Math.max(0.5, Math.min(8, state.zoom * by)); state.pan = state.pan.map(v => v * by); position(); highlight(state.chosen); }
  function reset() {
    moved = data.positions.map(p => p.slice());
    Object.assign(state, { zoom: 1, pan: [0, 0], probability: AT_FIRST, standardised: true, hideLonely: false });
    $("standardised").checked = true;
    document.querySelectorAll("#lags input").forEach(box => { box.checked = true; state.lags.add(Number(box.value)); });
    $("hide-lonely").checked = false; $("min-probability").value = AT_FIRST;
    fitWeight();
    choose(null);
    redraw();
  }
  return { data, EDGE, edges, passes, number, way, when, setUp, onDraw: f => listeners.push(f) };
})();
