// A page that was opened from a disk may not read other files: there results of a search are shown without excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// A button that copies a block of code, without prompts and output where it is a session of Python.
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  for (const pre of document.querySelectorAll("div.highlight pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-code";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      const lines = pre.textContent.split("\n");
      const typed = lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line)).map((line) => line.slice(4));
      await navigator.clipboard.writeText((typed.length ? typed : lines).join("\n"));
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    });
    pre.parentElement.append(button);
  }
});
