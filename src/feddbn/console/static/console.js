"use strict";
// What pages do beyond links and forms, which work without it: keep themselves up to date, and read a file into a form.
(() => {
  const EVERY_MS = Number(document.body.dataset.every);

  // A file is read here, so that the form stays one of text, and the owner sees what is sent.
  for (const input of document.querySelectorAll("input[type=file][data-into]")) {
    input.closest("label").hidden = false;
    input.addEventListener("change", async () => {
      const file = input.files[0];
      if (file && file.size < 500000) document.getElementById(input.dataset.into).value = await file.text();
    });
  }

  // Parts that change are taken from the page itself, asked for again; the server has escaped every name in it.
  const parts = page => new Map([...page.querySelectorAll("[data-live]")].map(part => [part.dataset.live, part]));
  const live = parts(document), before = new Map([...live].map(([name, part]) => [name, part.innerHTML]));
  if (!live.size) return;
  async function refresh() {
    if (document.hidden) return;
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = parts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    for (const [name, part] of live) {
      const now = fresh.has(name) ? fresh.get(name).innerHTML : "";
      // What somebody is about to press stays where it is.
      if (now === before.get(name) || part.contains(document.activeElement)) continue;
      before.set(name, now);
      part.replaceChildren(...[...(fresh.get(name)?.childNodes ?? [])].map(node => document.importNode(node, true)));
    }
  }
  function closed() {
    if (document.getElementById("closed")) return;
    const line = document.createElement("p");
    line.id = "closed";
    line.className = "said error";
    line.setAttribute("role", "alert");
    line.textContent = "The console does not answer any more. Start it again in its terminal and open the address it prints.";
    document.querySelector("main").prepend(line);
  }
  const opened = () => document.getElementById("closed")?.remove();
  setInterval(() => refresh().then(opened, closed), EVERY_MS);
})();
