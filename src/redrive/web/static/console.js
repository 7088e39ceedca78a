"use strict";
// All pages work without this script: it shows progress and live numbers, adds copy buttons and
// keyboard shortcuts. Its texts are data attributes of its script element.
const words = document.currentScript.dataset;

for (const place of document.querySelectorAll("[data-progress]")) follow(place);
for (const place of document.querySelectorAll("[data-live-from]")) keepUp(place);

// Put times into the reader's zone; the server writes them in UTC.
const STAMP = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/g;
const local = (moment) => moment.toLocaleString("sv");
const localised = (text) => text.replace(STAMP, (stamp) => local(new Date(`${stamp.slice(0, 10)}T${stamp.slice(11, 19)}Z`)));
for (const one of document.querySelectorAll("[data-zone]")) one.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
for (const one of document.querySelectorAll("time")) {
  const [moment, { tick }] = [local(new Date(one.dateTime)), one.dataset];
  if (tick) one.textContent = moment.slice(...tick.split(" "));
  else if (one.title) one.title = moment;
  else [one.title, one.textContent] = [one.textContent, moment];
}
for (const one of document.querySelectorAll("svg title, [data-live]")) one.textContent = localised(one.textContent);
for (const one of document.querySelectorAll("svg [aria-label], svg[aria-label]")) one.setAttribute("aria-label", localised(one.getAttribute("aria-label")));

// Say what has changed since this browser's last visit, which ends once nobody has looked for half an hour.
const visit = document.querySelector("[data-visit]");
if (visit) {
  const key = `redrive-visit ${location.pathname}`;
  const { seen, before } = JSON.parse(localStorage.getItem(key) ?? "{}");
  const since = Date.now() - seen > 1_800_000 ? seen : before;
  localStorage.setItem(key, JSON.stringify({ seen: Date.now(), before: since }));
  const spans = [...document.querySelectorAll(".cause")].map((cause) => [...cause.querySelectorAll("time")].map((one) => Date.parse(one.dateTime)));
  const come = spans.filter(([first]) => first > since).length;
  const more = spans.filter(([first, last]) => first <= since && last > since).length;
  visit.hidden = !since;
  visit.textContent = `Since your last visit, ${local(new Date(since ?? 0))}: ${come} new ${come === 1 ? "cause" : "causes"}, ${more} of the others ${more === 1 ? "has" : "have"} failed again.`;
}

// Update the numbers on the page; causes that are not on it are only announced.
function keepUp(place) {
  let seen = "";
  const ask = async () => {
    let pause = 1000;
    try {
      if (!document.hidden) {
        const answer = await fetch(`${place.dataset.liveFrom}&seen=${seen}`);
        if (!answer.ok) throw new Error(String(answer.status));
        if (answer.status === 200) {
          const told = await answer.json();
          seen = told.seen ?? "";
          showValues(place, told.values);
        }
      }
    } catch {
      pause = 5000;
    }
    setTimeout(ask, pause);
  };
  setTimeout(ask, 1000);
}

function showValues(place, values) {
  const shown = new Map();
  for (const one of document.querySelectorAll("[data-live]")) {
    if (!shown.has(one.dataset.live)) shown.set(one.dataset.live, []);
    shown.get(one.dataset.live).push(one);
  }
  let unseen = 0;
  for (const [name, value] of Object.entries(values)) {
    const ones = shown.get(name);
    if (!ones) unseen += name.startsWith("cause-");
    else for (const one of ones) if (one.textContent !== localised(value)) one.textContent = localised(value);
  }
  for (const [name, ones] of shown) {
    if (name.startsWith("cause-") && !(name in values)) for (const one of ones) one.textContent = "0";
  }
  const news = place.querySelector("[data-news]");
  if (news && place.dataset.causes === "all") {
    news.hidden = !unseen;
    const said = unseen === 1 ? news.dataset.news : news.dataset.many;
    news.querySelector("strong").textContent = said.replace("{}", unseen);
  }
}

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

// List only the shortcuts that do something on this page.
for (const one of document.querySelectorAll("[data-needs]")) one.hidden = !document.querySelector(one.dataset.needs);

function search() {
  const place = document.querySelector("[data-search]");
  if (place) place.focus();
  else location.href = `${document.querySelector("a.brand").href}#search`;
}
if (location.hash === "#search") document.querySelector("[data-search]")?.focus();

const rows = [...document.querySelectorAll("[data-row]")];
let current = -1;

function choose(number) {
  if (!rows.length) return;
  rows[current]?.classList.remove("current");
  current = Math.max(0, Math.min(rows.length - 1, number));
  rows[current].classList.add("current");
  rows[current].querySelector("a.title")?.focus();
}

for (const place of document.querySelectorAll("body [data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = words.copy;
  button.setAttribute("aria-label", place.dataset.copy);
  button.addEventListener("click", async () => {
    button.textContent = (await copied(place)) ? words.copied : words.select;
    setTimeout(() => (button.textContent = words.copy), 2000);
  });
  place.after(button);
}

for (const place of document.querySelectorAll("textarea[data-report]")) {
  const file = document.createElement("input");
  file.type = "file";
  file.accept = ".json";
  file.setAttribute("aria-label", place.dataset.report);
  file.addEventListener("change", async () => (place.value = short(await file.files[0].text())));
  place.after(file);
}

function short(report) {
  try {
    const said = JSON.parse(report);
    said.results = said.results.map(({ failure_id, result }) => ({ failure_id, result }));
    delete said.causes;
    return JSON.stringify(said);
  } catch {
    return report;
  }
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
  if (form && box && !form.querySelector(":checked")) box.checked = true;
  if (form?.querySelector(":checked")) form.requestSubmit();
  else document.querySelector("a[data-plan]")?.click();
}

function help() {
  const keys = document.querySelector("#keys");
  keys.open = !keys.open;
  if (keys.open) keys.querySelector("summary").focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input:not([type=checkbox]), textarea, select")) return;
  if (event.key === "/") search();
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
