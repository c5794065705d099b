/* Finds sections by their words, and shows the passage that has most of them. The texts come as a script, as a page that
   was opened from a folder may fetch nothing. The search of Sphinx finds whole pages, and shows passages of a server's alone. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  Search.query = (query) => {
    const texts = document.createElement("script");
    texts.src = "_static/sections.js";
    texts.onload = () => showSections(query);
    document.head.append(texts);
  };
});

const MOST_FOUND = 30;
const PASSAGE = 240;

function showSections(query) {
  const stemmer = new Stemmer(), stems = new Map();
  const stem = (word) => stems.get(word) ?? stems.set(word, stemmer.stemWord(word)).get(word);
  const tokens = (text) =>
    [...text.toLowerCase().matchAll(/[\p{L}\p{N}_]+/gu)].map((one) => [stem(one[0]), one.index, one[0].length]);
  const words = query.toLowerCase().split(/\s+/);
  const telling = words.filter((one) => !stopwords.has(one));
  const asked = [...new Set(tokens((telling.length ? telling : words).join(" ")).map((one) => one[0]))];

  const found = [];
  for (const [page, pageTitle, anchor, title, text] of SECTIONS) {
    const heads = new Set(tokens(title).map((one) => one[0]));
    const hits = tokens(text).filter((one) => asked.includes(one[0]));
    const inText = new Set(hits.map((one) => one[0]));
    const all = new Set([...inText, ...asked.filter((one) => heads.has(one))]);
    if (!all.size) continue;
    // Of sections with the same words the one comes first whose heading has them, then the one where they stand together.
    const inTitle = asked.filter((one) => heads.has(one)).length;
    const [start, together] = passage(hits);
    const score = inTitle * 20 - heads.size + together * 10 + Math.min(hits.length, 9);
    found.push({ page, pageTitle, anchor, title, text, hits, start, score, words: all.size });
  }
  const most = Math.max(0, ...found.map((one) => one.words));
  const best = found.filter((one) => one.words === most).sort((a, b) => b.score - a.score).slice(0, MOST_FOUND);
  best.forEach((one) => Search.output.append(shown(one)));
  _finishSearch(best.length);
  if (best.length) Search.status.textContent = `${best.length} of ${found.length} sections have most of these words.`;
}

/* Returns where the passage with most different words begins, and how many it has. */
function passage(hits) {
  let start = 0, most = 0;
  for (let first = 0; first < hits.length; first++) {
    const words = new Set();
    for (let i = first; i < hits.length && hits[i][1] < hits[first][1] + PASSAGE; i++) words.add(hits[i][0]);
    if (words.size > most) [start, most] = [hits[first][1], words.size];
  }
  return [start, most];
}

function shown({ page, pageTitle, anchor, title, text, hits, start }) {
  const item = document.createElement("li"), link = document.createElement("a"), context = document.createElement("p");
  link.href = `${page}.html${anchor ? `#${anchor}` : ""}`;
  link.textContent = title === pageTitle ? title : `${pageTitle} > ${title}`;
  context.classList.add("context");
  const begin = start < 80 ? 0 : text.indexOf(" ", start - 60) + 1, end = begin + PASSAGE + 60;
  let at = begin;
  if (begin) context.append("… ");
  for (const [, index, length] of hits.filter((one) => one[1] >= begin && one[1] + one[2] <= end)) {
    const word = document.createElement("span");
    word.classList.add("highlighted");
    word.textContent = text.slice(index, index + length);
    context.append(text.slice(at, index), word);
    at = index + length;
  }
  context.append(text.slice(at, end), end < text.length ? " …" : "");
  item.append(link, context);
  return item;
}
