"use strict";
// The course of a run: one small SVG for each number that its program tells. Names become text, never markup.
(() => {
  const EVERY_MS = Number(document.body.dataset.every), W = 320, H = 150, LEFT = 50, RIGHT = 10, TOP = 8, BOTTOM = 22;
  const TITLES = { objective: "Objective", h: "Cycles (h)", primal: "Primal residual", dual: "Dual residual" };
  const place = document.querySelector("[data-curves]");
  if (!place) return;
  const make = (name, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const short = value => value === 0 ? "0" : Math.abs(value) >= 1e4 || Math.abs(value) < 1e-2 ? value.toExponential(1) : String(+value.toPrecision(3));

  function draw(curve) {
    const { sums, values } = curve, low = Math.min(...values), high = Math.max(...values);
    // What falls over powers of ten is seen on such a scale only.
    const powers = low > 0 && high / low > 100, scale = powers ? Math.log10 : v => v;
    const x0 = sums[0], x1 = Math.max(sums[sums.length - 1], x0 + 1), y0 = scale(low), y1 = scale(high) > y0 ? scale(high) : y0 + 1;
    const x = v => LEFT + (v - x0) / (x1 - x0) * (W - LEFT - RIGHT), y = v => H - BOTTOM - (scale(v) - y0) / (y1 - y0) * (H - TOP - BOTTOM);
    const last = values[values.length - 1], title = TITLES[curve.name] || curve.name;
    const picture = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title} over ${sums.length} sums, now ${short(last)}` });
    picture.append(
      make("line", { class: "axis", x1: LEFT, x2: W - RIGHT, y1: H - BOTTOM, y2: H - BOTTOM }),
      make("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: H - BOTTOM }),
      make("text", { x: LEFT - 5, y: TOP + 8, "text-anchor": "end" }, short(high)),
      make("text", { x: LEFT - 5, y: H - BOTTOM, "text-anchor": "end" }, short(low)),
      make("text", { x: LEFT, y: H - 6 }, `sum ${x0}`),
      make("text", { x: W - RIGHT, y: H - 6, "text-anchor": "end" }, String(sums[sums.length - 1])),
      make("path", { class: "trace", d: sums.map((s, k) => `${k ? "L" : "M"}${x(s).toFixed(1)} ${y(values[k]).toFixed(1)}`).join("") }),
      make("circle", { class: "last", r: 3.5, cx: x(sums[sums.length - 1]), cy: y(last) }),
    );
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), now = document.createElement("b");
    figure.className = "curve";
    now.textContent = short(last);
    caption.append(powers ? `${title}, log scale` : title, now);
    figure.append(caption, picture);
    return figure;
  }

  async function refresh() {
    if (document.hidden) return false;
    const answer = await fetch(place.dataset.curves, { credentials: "same-origin" });
    if (!answer.ok) return false;
    const { curves, ended } = await answer.json();
    const first = curve => curve.name === "objective" ? 0 : 1;
    place.replaceChildren(...curves.sort((a, b) => first(a) - first(b)).map(draw));
    place.closest("section").hidden = !curves.length;
    return ended;
  }
  const again = () => refresh().then(ended => { if (!ended) setTimeout(again, EVERY_MS); }, () => setTimeout(again, EVERY_MS));
  again();
})();
