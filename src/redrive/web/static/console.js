"use strict";
// Everything works without this: it asks how far a look or a job is, copies, and gives pages keys.

for (const place of document.querySelectorAll("[data-progress]")) follow(place);

function follow(place) {
  const ask = async () => {
    try {
      const answer = await fetch(place.dataset.progress, { headers: { accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const told = await answer.json();
      if (told.ended) return void location.reload();
      for (const [name, value] of Object.entries(told.values)) {
        const shown = place.querySelector(`[data-value="${name}"]`);
        if (shown && shown.textContent !== value) shown.textContent = value;
      }
      setTimeout(ask, 1000);
    } catch {
      setTimeout(ask, 5000);
    }
  };
  setTimeout(ask, 1000);
}

const rows = [...document.querySelectorAll("[data-row]")];
let current = -1;

function choose(number) {
  if (!rows.length) return;
  rows[current]?.classList.remove("current");
  current = Math.max(0, Math.min(rows.length - 1, number));
  rows[current].classList.add("current");
  rows[current].querySelector("a.title")?.focus();
}

for (const place of document.querySelectorAll("[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${place.dataset.copy || "it"}`);
  button.addEventListener("click", async () => {
    button.textContent = (await copied(place)) ? "Copied" : "Select it, and copy";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  place.after(button);
}

async function copied(place) {
  const text = place.value ?? place.textContent;
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(place);
    return false;
  }
}

function plan() {
  const form = document.querySelector("[data-choice]");
  const box = rows[current]?.querySelector("[type=checkbox]");
  if (!form) return document.querySelector("a[data-plan]")?.click();
  if (!form.querySelector(":checked") && box) box.checked = true;
  if (form.querySelector(":checked")) form.requestSubmit();
}

function help() {
  const keys = document.querySelector("#keys");
  keys.open = !keys.open;
  if (keys.open) keys.querySelector("summary").focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input:not([type=checkbox]), textarea, select")) return;
  const search = document.querySelector("[data-search]");
  if (event.key === "/" && search) search.focus();
  else if (event.key === "j") choose(current + 1);
  else if (event.key === "k") choose(current - 1);
  else if (event.key === "x" && rows[current]) rows[current].querySelector("[type=checkbox]")?.click();
  else if (event.key === "r") plan();
  else if (event.key === "n" || event.key === "p") document.querySelector(`a[rel=${event.key === "n" ? "next" : "prev"}]`)?.click();
  else if (event.key === "?") help();
  else if (event.key === "g") document.querySelector("a.brand")?.click();
  else return;
  event.preventDefault();
});
