"use strict";
// The table of all configurations: click a head to sort by it, type to keep the rows that hold every word.
const table = document.querySelector("table.all");
if (table) {
  const body = table.tBodies[0];
  const value = (row, column) => {
    const number = row.cells[column].querySelector("data");
    return number ? Number(number.value) : row.cells[column].textContent;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    // Cells without a number stand below those with one, whichever way the column is sorted.
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  table.tHead.querySelectorAll("th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.classList.toggle("number", body.rows[0].cells[column].classList.contains("number"));
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const empty = (row) => row.cells[column].textContent === "";
      const rows = [...body.rows].sort(
        (a, b) => empty(a) - empty(b) || (up ? 1 : -1) * compare(value(a, column), value(b, column)),
      );
      body.append(...rows);
    });
  });
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
}
// What is folded away on a screen is read on paper.
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
