"use strict";
// A number opens where it comes from. Without this script its link leads to the record of its run.

const { cells, runs } = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("provenance");

/** An element with properties and children; text is never read as HTML. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function facts(pairs) {
  return make("dl", {}, ...pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function command(text) {
  const code = make("code", {}, text);
  const button = make("button", { type: "button", ariaLabel: `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
  });
  return make("div", { className: "command" }, make("pre", { tabIndex: 0 }, code), button);
}

function seeds(run) {
  const heads = run.heads.map((head) => make("th", { scope: "col" }, head));
  const rows = run.seeds.map(([seed, ...values]) =>
    make("tr", {}, make("th", { scope: "row" }, seed), ...values.map((each) => make("td", { className: "number" }, each))));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  const frame = make("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: "The seeds of the run" }, table);
  return frame;
}

function settings(title, values) {
  return make("details", {}, make("summary", {}, title), make("pre", { tabIndex: 0 }, JSON.stringify(values, null, 1)));
}

function provenance(name, open) {
  const run = runs[name];
  const files = make("p", { className: "files" }, make("a", { href: `${run.folder}/record.json` }, "record.json"), ", ",
    make("a", { href: `${run.folder}/curves.csv` }, "curves.csv"));
  return make("details", { open }, make("summary", {}, make("strong", {}, `Run ${name}`)), seeds(run), facts(run.facts),
    settings("The whole configuration", run.config), settings("Hyper-parameters at their defaults", run.defaults), files);
}

function show(link) {
  const names = link.dataset.runs.split(" ");
  const cell = cells[link.closest("td[id]")?.id];
  const above = (part, heading) => link.closest(`section.${part}`).querySelector(heading).textContent;
  const named = cell ? above("table", "h3") : names.length > 1 ? `${names.length} runs` : names[0];
  const title = make("h2", { id: "provenance-title" }, named);
  const close = make("button", { type: "button" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const body = make("div", { className: "body" });
  if (cell) {
    body.append(facts([["paper", link.closest("article").querySelector("h1").textContent], ...cell.facts]), make("ul", { className: "legend" }, ...cell.notes.map((note) => make("li", {}, note))));
  }
  body.append(make("h3", {}, "Rebuild it"), ...names.map((name) => command(runs[name].command)));
  body.append(make("p", { className: "files" }, "This trains all seeds again, into a folder of its own. Without ", make("code", {}, "--out"),
    " it would write to the place that the tables read, and keep the seeds that the record there has of the same settings, data and numerics."));
  if (cell) body.append(make("h3", {}, "Render it again"), command(`fedrepro evaluate ${names[0].split("/")[0]} && fedrepro report`));
  body.append(make("h3", {}, "Where it comes from"), ...names.map((name) => provenance(name, names.length === 1)));
  dialog.replaceChildren(make("div", { className: "head" }, title, close), body);
  dialog.showModal();
  dialog.scrollTop = 0;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-runs]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    show(link);
  } else if (event.target === dialog) {
    dialog.close();
  }
});

// What is wider than the screen is scrolled in its own frame, by the keyboard too.
const frames = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight + 1) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
document.querySelectorAll(".frame, .scroll").forEach((frame) => frames.observe(frame));

// A link into a folded part opens it.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const own = target?.querySelector(":scope > details");
  for (let part = own ?? target?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

/** Show the rows with some words, of the row or of the heading above it, and with a verdict. */
function filter(form) {
  const words = form.querySelector("input").value.trim().toLowerCase();
  const band = form.querySelector("select").value;
  let shown = 0;
  for (const table of form.parentElement.querySelectorAll("table.grid")) {
    let own = 0;
    for (const body of table.querySelectorAll("tbody:not(.group)")) {
      const heading = body.previousElementSibling?.matches("tbody.group") ? body.previousElementSibling : null;
      let left = 0;
      for (const row of body.rows) {
        const said = `${heading?.textContent ?? ""} ${row.textContent}`.toLowerCase();
        row.hidden = !said.includes(words) || Boolean(band && !row.dataset.bands.split(" ").includes(band));
        left += !row.hidden;
      }
      if (heading) heading.hidden = !left;
      own += left;
    }
    table.closest("section.table").hidden = !own;
    shown += own;
  }
  form.querySelector("output").textContent = words || band ? `${shown} row${shown === 1 ? "" : "s"}` : "";
}

document.querySelectorAll("form.filter").forEach((form) => {
  form.hidden = false;
  form.addEventListener("input", () => filter(form));
  form.addEventListener("submit", (event) => event.preventDefault());
});
