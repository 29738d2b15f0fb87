// Measures the boxes of a page, and gives its faults: a function for Playwright's `evaluate`.
//
// A line is what a text has on one line of its page: words beside each other, by the rectangles of
// Range.getClientRects. A rectangle is as high as the font, not as the content area that the font
// asks for, which is half as high again for Chinese.
({ isWide }) => {
  const OVERLAP = 2, OUTSIDE = 1.5, WORD_CHARS_MAX = 40; // px, px, characters
  const CJK = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\u3000-\\u303f\\uff00-\\uffef";
  const PIECES = new RegExp(`[^\\s${CJK}]+|[${CJK}]`, "gu");
  const IS_CJK = new RegExp(`[${CJK}]`, "u");
  const LEFT_OUT = "script, style, noscript, template, option, datalist, textarea, canvas";
  const found = [];
  const styles = new Map();

  const style = (element) => {
    if (!styles.has(element)) styles.set(element, getComputedStyle(element));
    return styles.get(element);
  };
  const squeezed = (text) => text.replace(/\s+/g, " ").trim();
  const short = (text) => JSON.stringify(squeezed(text).slice(0, 40));
  const named = (element) => {
    const id = element.id ? `#${element.id}` : "";
    return `${element.localName}${id}${[...element.classList].map((one) => `.${one}`).join("")}`;
  };
  const told = (element) => `${named(element)} ${short(element.textContent)}`;
  const size = (box) => `${Math.round(box.left)}..${Math.round(box.right)} x ` +
    `${Math.round(box.top)}..${Math.round(box.bottom)}`;
  const say = (kind, text) => found.push(`${kind}: ${text}`);
  const px = (text) => parseFloat(text) || 0;
  const isEmpty = (box) => box.right <= box.left || box.bottom <= box.top;
  const common = (one, two) => ({
    left: Math.max(one.left, two.left), right: Math.min(one.right, two.right),
    top: Math.max(one.top, two.top), bottom: Math.min(one.bottom, two.bottom),
  });

  function* parents(element) {
    for (let one = element; one; one = one.parentElement) yield one;
  }

  // The element and the ones around it that cut it and hold it: not those out of whose flow it is.
  function* holders(element) {
    let leaves = ""; // how the last one left the flow
    for (const one of parents(element)) {
      const { position, transform } = style(one);
      const holds = transform !== "none" || (leaves === "absolute" && position !== "static");
      if (leaves && !holds) continue;
      leaves = "";
      yield one;
      if (position === "fixed") return;
      if (position === "absolute") leaves = position;
    }
  }

  const isBlock = (element) => !/^(inline|contents|ruby)$/.test(style(element).display);
  const container = (element) => {
    for (const one of parents(element)) if (isBlock(one)) return one;
    return document.body;
  };
  const scrolls = (element, way) => /auto|scroll/.test(style(element)[`overflow${way}`]);
  const cuts = (element, way) => /hidden|clip/.test(style(element)[`overflow${way}`]);
  const inner = (element) => { // the padding box
    const box = element.getBoundingClientRect();
    const left = box.left + element.clientLeft, top = box.top + element.clientTop;
    return { left, top, right: left + element.clientWidth, bottom: top + element.clientHeight };
  };
  const contentWidth = (element) => {
    const own = style(element);
    return element.clientWidth - px(own.paddingLeft) - px(own.paddingRight);
  };

  // Of one pixel, cut to nothing, or beyond the page: for readers of screens.
  const isForEars = (element) => {
    for (const one of parents(element)) {
      const box = one.getBoundingClientRect(), own = style(one);
      const isAway = own.position !== "static" &&
        (box.right + scrollX <= 0 || box.bottom + scrollY <= 0);
      const isTiny = own.overflowX !== "visible" && box.width <= 2 && box.height <= 2;
      if (isAway || isTiny || /^inset\((50|100)%/.test(own.clipPath)) return true;
    }
    return false;
  };
  const isSeen = (element) => element.checkVisibility({
    opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true,
  }) && !isForEars(element);

  // Words in the order of the page, each with its pieces: a word may be in several elements.
  const words = [];
  let word = null;
  const end = () => { if (word) words.push(word); word = null; };
  const read = (node) => {
    const element = node.parentElement, text = node.data;
    const block = container(element);
    if (word && (word.block !== block || /^\s/.test(text))) end();
    let last = 0;
    for (const piece of text.matchAll(PIECES)) {
      const isCjk = IS_CJK.test(piece[0]);
      if (piece.index > last || isCjk) end();
      if (!word) word = { block, isCjk, text: "", rects: [], element };
      const range = document.createRange();
      range.setStart(node, piece.index);
      last = piece.index + piece[0].length;
      range.setEnd(node, last);
      const high = px(style(element).fontSize);
      for (const { left, right, top, bottom } of range.getClientRects()) {
        const middle = (top + bottom) / 2, half = Math.min(bottom - top, high) / 2;
        if (right <= left) continue;
        word.rects.push({
          left, right, top: middle - half, bottom: middle + half, node, element,
          text: piece[0],
        });
      }
      word.text += piece[0];
      if (isCjk) end();
    }
    if (last < text.length) end();
  };
  const walk = (element) => {
    if (element.matches(LEFT_OUT) || style(element).display === "none") return;
    const isApart = isBlock(element) || /^(br|img|svg|input|select|wbr)$/.test(element.localName);
    const isBreak = isApart && element.localName !== "wbr"; // a word goes on behind wbr
    if (isBreak) end();
    const isClosed = element.localName === "details" && !element.open;
    const shown = isClosed ? element.querySelectorAll(":scope > summary") : element.childNodes;
    for (const child of shown) {
      if (child.nodeType === Node.TEXT_NODE) {
        if (/\S/.test(child.data)) {
          if (isSeen(element)) read(child);
        } else if (child.data) end();
      } else if (child.nodeType === Node.ELEMENT_NODE) walk(child);
    }
    if (isBreak) end();
  };
  walk(document.body);
  end();

  const isBeside = (one, two) => {
    const middle = (box) => (box.top + box.bottom) / 2;
    const high = Math.min(one.bottom - one.top, two.bottom - two.top);
    return Math.abs(middle(one) - middle(two)) < high / 2;
  };

  // Lines: the rectangles of a node that are beside each other.
  const lines = [];
  for (const { rects } of words) {
    for (const rect of rects) {
      const line = lines.at(-1);
      if (line && line.node === rect.node && isBeside(line, rect)) {
        const gap = rect.left - line.right > 1 ? " " : "";
        Object.assign(line, {
          left: Math.min(line.left, rect.left), right: Math.max(line.right, rect.right),
          top: Math.min(line.top, rect.top), bottom: Math.max(line.bottom, rect.bottom),
          text: line.text + gap + rect.text,
        });
      } else lines.push({ ...rect });
    }
  }

  // A text that is cut with an ellipsis and is whole in a title.
  const isTitled = (cutter, line) => {
    const own = style(cutter);
    const isShortened = own.textOverflow === "ellipsis" || /^\d/.test(own.webkitLineClamp);
    const whole = squeezed(cutter.textContent);
    return isShortened && [...parents(line.element)].some(
      (one) => one.title && squeezed(one.title).includes(whole));
  };

  // What the window does for: its width is measured by itself.
  const isWindow = (element) => element === document.documentElement ||
    (element === document.body && style(document.documentElement).overflowX === "visible");

  // What of a line is seen, after all that scrolls or cuts; null for nothing.
  const seen = (line) => {
    let box = line;
    for (const one of holders(line.element)) {
      if (!isBlock(one) || isWindow(one)) continue;
      const isCut = cuts(one, "X") || cuts(one, "Y");
      if (!isCut && !scrolls(one, "X") && !scrolls(one, "Y")) continue;
      const edge = inner(one), rest = common(box, edge);
      const lostX = Math.max(edge.left - box.left, box.right - edge.right);
      const lostY = Math.max(edge.top - box.top, box.bottom - edge.bottom);
      const isClipped = (cuts(one, "X") && lostX > OUTSIDE) || (cuts(one, "Y") && lostY > OUTSIDE);
      if (isClipped && !isTitled(one, line)) {
        say("clipped", `${short(line.text)} of ${told(line.element)} at ${size(line)} is cut by ` +
          `${named(one)}, which shows ${size(edge)}`);
      }
      if (isEmpty(rest)) return null;
      box = rest;
    }
    return box;
  };

  // A box with an edge that a reader sees, or that is one by its name.
  const isDrawn = (element) => {
    const own = style(element);
    const sides = ["Top", "Right", "Bottom", "Left"];
    return element.matches("td, th, button, header, summary, nav, dd, dt, .card") ||
      sides.every((side) => px(own[`border${side}Width`]) > 0) ||
      !/^(transparent|rgba\(.*, 0\))$/.test(own.backgroundColor);
  };
  const checkOutside = (line) => {
    const nearest = container(line.element);
    for (const one of holders(line.element)) {
      if (one === document.body || one === document.documentElement) return;
      if (scrolls(one, "X") || scrolls(one, "Y") || cuts(one, "X") || cuts(one, "Y")) return;
      if (one !== nearest && !(isDrawn(one) && isBlock(one))) continue;
      const box = one.getBoundingClientRect();
      const over = Math.max(box.left - line.left, line.right - box.right,
        box.top - line.top, line.bottom - box.bottom);
      if (over > OUTSIDE) {
        say("outside", `${short(line.text)} of ${told(line.element)} at ${size(line)} leaves ` +
          `${named(one)} at ${size(box)} by ${over.toFixed(1)} px`);
        return;
      }
    }
  };

  const isFixed = (element) => [...parents(element)].some((one) => style(one).position === "fixed");
  const inFlow = (element, above) => {
    for (const one of parents(element)) {
      if (one === above) return true;
      if (/absolute|fixed/.test(style(one).position) || style(one).float !== "none") return false;
    }
    return false;
  };
  const checkOverlaps = (boxes) => {
    boxes.sort((one, two) => one.box.top - two.box.top);
    boxes.forEach((one, number) => {
      for (let next = number + 1; next < boxes.length; next++) {
        const two = boxes[next];
        if (two.box.top >= one.box.bottom - OVERLAP) break;
        const both = common(one.box, two.box);
        if (both.right - both.left <= OVERLAP || both.bottom - both.top <= OVERLAP) continue;
        const first = one.line.element, second = two.line.element;
        if (isFixed(first) !== isFixed(second)) continue; // what is below it can be scrolled away
        const isSame = one.line.node === two.line.node; // its lines are too near each other
        if (!isSame && first.contains(second) && inFlow(second, first)) continue;
        if (!isSame && second.contains(first) && inFlow(first, second)) continue;
        say("overlap", `${short(one.line.text)} of ${told(first)} at ${size(one.box)} and ` +
          `${short(two.line.text)} of ${told(second)} at ${size(two.box)}`);
      }
    });
  };

  const checkBroken = ({ block, isCjk, text, rects }) => {
    if (isCjk || rects.length < 2 || [...text].length > WORD_CHARS_MAX) return;
    if (rects.every((one) => isBeside(rects[0], one))) return;
    const wide = rects.reduce((sum, one) => sum + one.right - one.left, 0);
    const cell = [...parents(block)].find((one) => style(one).display === "table-cell");
    const room = contentWidth(block);
    const isProse = !cell && block.matches("p, li"); // whose lines may end with a hyphen or slash
    if (isProse && /[-/]./.test(text)) return;
    if (cell || wide < room) {
      say("broken", `the word ${short(text)} of ${told(cell ?? block)} is on several lines; it ` +
        `is ${wide.toFixed(1)} px wide, its line ${room.toFixed(1)} px`);
    }
  };

  const checkNumber = (cell) => {
    if (!isSeen(cell)) return;
    const { textAlign, direction, paddingRight, borderRightWidth } = style(cell);
    if (textAlign !== "right" && !(textAlign === "end" && direction === "ltr")) {
      say("number", `${told(cell)} is aligned ${textAlign}`);
      return;
    }
    const edge = cell.getBoundingClientRect().right - px(paddingRight) - px(borderRightWidth);
    for (const line of lines) {
      if (container(line.element) === cell && edge - line.right > OVERLAP + 2) {
        say("number", `${short(line.text)} of ${named(cell)} ends at ${line.right.toFixed(1)}, ` +
          `not at ${edge.toFixed(1)}`);
      }
    }
  };

  const checkAxes = (figure) => {
    if (!figure.chart) return; // less than two points
    const pen = document.createElement("canvas").getContext("2d");
    for (const axis of figure.chart.axes) {
      if (axis.side % 2 === 0 || !axis.show || !axis._values) continue;
      pen.font = Array.isArray(axis.font) ? axis.font[0] : axis.font;
      const ratio = Array.isArray(axis.font) ? axis.font[1] / axis.font[2] : 1; // of pixels
      const room = axis._size - (axis.ticks.show ? axis.ticks.size : 0) - axis.gap;
      for (const label of axis._values) {
        const wide = label == null ? 0 : pen.measureText(label).width / ratio;
        if (wide > room) {
          say("axis", `the label ${short(String(label))} of ${told(figure)} is ` +
            `${wide.toFixed(1)} px wide, its axis has ${room} px`);
        }
      }
    }
  };

  const boxes = [];
  for (const line of lines) {
    const box = seen(line);
    if (box) boxes.push({ line, box });
    checkOutside(line);
  }
  checkOverlaps(boxes);
  words.forEach(checkBroken);
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) {
    say("page", `the document is ${root.scrollWidth} px wide, the window ${innerWidth} px`);
  }
  for (const one of isWide ? document.body.querySelectorAll("*") : []) {
    if (scrolls(one, "X") && one.scrollWidth > one.clientWidth + 1 && !one.matches("pre, textarea")
      && isBlock(one) && isSeen(one)) {
      say("scrolls", `${told(one)} is ${one.scrollWidth} px wide and shows ${one.clientWidth} px`);
    }
  }
  if (isWide) document.querySelectorAll("td.number").forEach(checkNumber);
  document.querySelectorAll("[data-chart]").forEach(checkAxes);
  return found;
}
