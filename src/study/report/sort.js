// Sorts a table by the column whose header is chosen; a second time the other way round.
for (const head of document.querySelectorAll("thead th")) {
  head.tabIndex = 0;
  head.title = "sort by this column";
  const sort = () => {
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.v ?? cell.textContent;
    };
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      const [n, m] = [Number(x), Number(y)];
      const order = Number.isNaN(n) || Number.isNaN(m) ? x.localeCompare(y) : n === m ? 0 : n - m;
      return down ? -order : order;
    });
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      sort();
    }
  });
}
