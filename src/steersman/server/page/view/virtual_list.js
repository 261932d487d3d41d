// A list of any length: only the rows near the visible part are in the document.
//
// Rows have a key, a version and an estimated height until they are measured. What the reader looks at stays where it
// is when rows above turn out taller or shorter; at the end of the list the view follows what is added.

const MARGIN = 700; // pixels above and below the visible part
const NEAR_END = 48;

export class VirtualList {
  /** `make(row)` returns { node, update(row) }; `estimate(row)` a height in pixels. */
  constructor(scroller, holder, { make, estimate, onscroll = () => {} }) {
    Object.assign(this, { scroller, holder, make, estimate, onscroll });
    this.rows = [];
    this.places = new Map(); // key -> place in rows
    this.heights = new Map(); // key -> measured height
    this.tops = [0];
    this.mounted = new Map(); // key -> { node, made, version }
    this.keys = new WeakMap(); // node -> key
    this.followsEnd = true;
    this.frame = 0;
    this.width = 0;
    this.top = 0; // how far it was scrolled when that was last known
    scroller.addEventListener("scroll", () => this.readScroll(), { passive: true });
    this.observer = new ResizeObserver(() => this.schedule());
    this.observer.observe(scroller);
  }

  /** Show these rows; those with a known key and version are left alone. */
  setRows(rows) {
    this.rows = rows;
    this.places = new Map(rows.map((row, place) => [row.key, place]));
    this.schedule();
  }

  /** Forget everything, for another list. */
  clear() {
    for (const view of this.mounted.values()) this.observer.unobserve(view.node);
    this.mounted.clear();
    this.heights.clear();
    this.holder.replaceChildren();
    this.rows = [];
    this.followsEnd = true;
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.layOut();
    });
  }

  readScroll() {
    const { scroller } = this;
    const isAtEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_END;
    // Only the reader leaves the end, upwards: a card that takes room below also moves the end away.
    const hasRisen = scroller.scrollTop < this.top - 1;
    this.followsEnd = isAtEnd || (this.followsEnd && !hasRisen);
    this.top = scroller.scrollTop;
    this.onscroll();
    this.schedule();
  }

  scrollToEnd() {
    this.followsEnd = true;
    this.layOut();
    this.onscroll();
  }

  /** Bring a row to the top of the visible part. */
  scrollTo(key) {
    const place = this.places.get(key);
    if (place === undefined) return;
    this.followsEnd = false;
    this.computeTops();
    this.scroller.scrollTop = this.tops[place];
    this.layOut();
    this.scroller.scrollTop = this.tops[place];
    this.layOut();
  }

  layOut() {
    if (this.scroller.clientWidth !== this.width) {
      this.width = this.scroller.clientWidth;
      this.heights.clear(); // lines break elsewhere now
    }
    this.computeTops();
    const anchor = this.findAnchor();
    // Measuring can move rows into view, and then those have to be measured too.
    for (let round = 0; round < 4; round++) {
      this.mount(anchor);
      const changed = this.measure();
      if (changed) this.computeTops();
      this.pad();
      this.restore(anchor);
      if (!changed) break;
    }
  }

  computeTops() {
    const { rows, heights, estimate } = this;
    const tops = new Array(rows.length + 1);
    tops[0] = 0;
    for (let place = 0; place < rows.length; place++) {
      tops[place + 1] = tops[place] + (heights.get(rows[place].key) ?? (rows[place].height ??= estimate(rows[place])));
    }
    this.tops = tops;
  }

  /** The place of the row at a height. */
  findPlace(top) {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= top) low = middle;
      else high = middle - 1;
    }
    return Math.max(low, 0);
  }

  findAnchor() {
    if (this.followsEnd || this.rows.length === 0) return null;
    // Where rows are in the document counts, since the list may have got others above them.
    const { top, bottom } = this.scroller.getBoundingClientRect();
    for (const node of this.holder.children) {
      const at = node.getBoundingClientRect();
      if (at.bottom > top && at.top < bottom) return { key: this.keys.get(node), offset: top - at.top };
    }
    const place = this.findPlace(this.scroller.scrollTop);
    return { key: this.rows[place].key, offset: this.scroller.scrollTop - this.tops[place] };
  }

  /** How far the list is scrolled when the anchor is where it was; null at its end. */
  findTop(anchor) {
    if (this.followsEnd) return null;
    const place = this.places.get(anchor?.key);
    return place === undefined ? this.scroller.scrollTop : this.tops[place] + anchor.offset;
  }

  restore(anchor) {
    const { scroller } = this;
    const top = this.findTop(anchor) ?? scroller.scrollHeight;
    if (Math.abs(scroller.scrollTop - top) >= 1) scroller.scrollTop = top;
    this.top = scroller.scrollTop;
  }

  /** Put the rows near the visible part into the document, and take the others out. */
  mount(anchor) {
    const { rows, scroller, holder, mounted } = this;
    const view = scroller.clientHeight;
    const top = this.findTop(anchor) ?? Math.max(this.tops[rows.length] - view, 0);
    this.from = this.findPlace(top - MARGIN);
    this.to = rows.length === 0 ? 0 : this.findPlace(top + view + MARGIN) + 1;
    const wanted = new Set();
    for (let place = this.from; place < this.to; place++) wanted.add(rows[place].key);
    for (const [key, { node }] of mounted) {
      if (wanted.has(key)) continue;
      if (node.contains(document.activeElement)) scroller.focus({ preventScroll: true });
      this.observer.unobserve(node);
      node.remove();
      mounted.delete(key);
    }
    let before = holder.firstChild;
    for (let place = this.from; place < this.to; place++) {
      const node = this.mountRow(rows[place], place);
      if (node === before) before = before.nextSibling;
      else holder.insertBefore(node, before);
    }
  }

  mountRow(row, place) {
    let view = this.mounted.get(row.key);
    if (view === undefined) {
      const made = this.make(row);
      view = { node: made.node, made, version: row.version };
      this.mounted.set(row.key, view);
      this.keys.set(view.node, row.key);
      this.observer.observe(view.node);
    } else if (view.version !== row.version) {
      view.version = row.version;
      view.made.update(row);
    }
    view.node.setAttribute("aria-posinset", place + 1);
    view.node.setAttribute("aria-setsize", this.rows.length);
    return view.node;
  }

  /** Measure the rows in the document; returns whether any height is another one. */
  measure() {
    let changed = false;
    for (const [key, { node }] of this.mounted) {
      const height = node.getBoundingClientRect().height;
      if (Math.abs((this.heights.get(key) ?? -1) - height) > 0.5) {
        this.heights.set(key, height);
        changed = true;
      }
    }
    return changed;
  }

  pad() {
    const end = this.tops[this.rows.length];
    this.holder.style.paddingTop = `${this.tops[this.from]}px`;
    this.holder.style.paddingBottom = `${Math.max(end - this.tops[this.to], 0)}px`;
  }
}
