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

/* A page may say another of these words than whoever asks. */
const ALIKE = [
  ["client", "hospital", "clinic", "site", "node", "participant"], ["dropout", "lost"],
  ["missing", "nan", "null"], ["separator", "delimiter"], ["install", "setup"], ["picture", "plot", "figure"],
];

function showSections(query) {
  const stemmer = new Stemmer(), stems = new Map(), alike = new Map();
  for (const same of ALIKE) for (const word of same) alike.set(stemmer.stemWord(word), stemmer.stemWord(same[0]));
  const stemmed = (word) => alike.get(stemmer.stemWord(word)) ?? stemmer.stemWord(word);
  const stem = (word) => stems.get(word) ?? stems.set(word, stemmed(word)).get(word);
  const tokens = (text) =>
    [...text.toLowerCase().matchAll(/[\p{L}\p{N}_]+/gu)].map((one) => [stem(one[0]), one.index, one[0].length]);
  const words = query.toLowerCase().replace(/\bdrop(s|ped)? out\b/g, "dropout").split(/\s+/);
  const telling = words.filter((one) => !stopwords.has(one));
  const asked = [...new Set(tokens((telling.length ? telling : words).join(" ")).map((one) => one[0]))];

  const found = new Map(), sections = new Map(asked.map((one) => [one, 1]));
  for (const [page, pageTitle, anchor, title, text] of SECTIONS) {
    const heads = new Set(tokens(title).map((one) => one[0])), tops = new Set(tokens(pageTitle).map((one) => one[0]));
    const hits = tokens(text).filter((one) => asked.includes(one[0]));
    const inText = new Set(hits.map((one) => one[0]));
    const all = asked.filter((one) => inText.has(one) || heads.has(one));
    all.forEach((one) => sections.set(one, sections.get(one) + 1));
    // A class and its page have one title, and an option of several commands one text: each is shown once.
    const key = page === "reference/commands" ? text || title : `${page} ${title}`;
    const before = found.get(key);
    if (all.length && !(before?.text && before.all.length >= all.length)) found.set(key, { page, pageTitle, anchor, title, text, hits, heads, tops, inText, all });
  }
  for (const one of found.values()) {
    // A word that few sections have tells more. It counts most in a heading; other words there count against it.
    const tells = (word) => Math.log(1 + SECTIONS.length / sections.get(word));
    const sum = (list) => list.reduce((total, word) => total + tells(word), 0);
    const inTitle = asked.filter((word) => one.heads.has(word));
    const [start, together] = passage(one.hits);
    const many = Math.min(one.hits.length, 12) / 12;
    const share = inTitle.length / Math.max(one.heads.size, 1);
    one.start = start;
    one.score = 2 * sum(one.all) + sum(inTitle) * (0.5 + share) + sum(asked.filter((word) => one.tops.has(word))) / 2 + together + many;
    // Pages are read before the reference is.
    if (!one.page.startsWith("reference/")) one.score *= 1.25;
  }
  const best = [...found.values()].sort((a, b) => b.score - a.score).slice(0, MOST_FOUND);
  best.forEach((one) => Search.output.append(shown(one)));
  _finishSearch(best.length);
  if (best.length) Search.status.textContent = `The best ${best.length} of ${found.size} sections with any of these words.`;
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
