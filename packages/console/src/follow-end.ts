/** Pixels between the end of the element and the element that covers the view. */
const GAP = 8;

/** Differences of this many pixels are ignored: text has fractional sizes, and browsers round positions. */
const TOLERANCE = 2;

/**
 * Keeps the end of a growing element in view. It stops when the reader scrolls up, or opens a part whose end is out of
 * view. It continues when the reader scrolls back to the end. It never scrolls smoothly: smooth scrolling would lag
 * behind the text, and some people have turned motion off.
 */
export class EndFollower {
  #element;
  #cover;
  #changed;
  #isFollowing = true;
  #isAway = false;
  #top = scrollY;

  /**
   * @param cover sticks to the bottom of the view, over the element
   * @param changed Called when `isAway` has changed.
   */
  constructor(element: HTMLElement, cover: HTMLElement, changed: () => void) {
    this.#element = element;
    this.#cover = cover;
    this.#changed = changed;
    const observer = new ResizeObserver(() => this.#resized());
    observer.observe(element);
    observer.observe(cover);
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    visualViewport?.addEventListener("resize", () => this.#resized());
    visualViewport?.addEventListener("scroll", () => this.#resized());
    element.addEventListener("click", (event) => this.#clicked(event));
  }

  /** True if the end is out of view because the reader scrolled away. */
  get isAway() {
    return this.#isAway;
  }

  /** Scrolls to the end and follows it again. */
  follow() {
    this.#isFollowing = true;
    this.#top = scrollY;
    this.#resized();
  }

  /** Pixels between the end and the bottom of the visible part. */
  #missing() {
    const { clientHeight } = document.documentElement;
    const seen = Math.min(this.#cover.getBoundingClientRect().top, clientHeight - keyboardHeight());
    return this.#element.getBoundingClientRect().bottom + GAP - seen;
  }

  #resized() {
    const keyboard = keyboardHeight();
    this.#cover.style.bottom = `${keyboard}px`;
    document.body.style.paddingBottom = `${keyboard}px`;
    // The browser scrolls what gets the focus to where nothing covers it.
    document.documentElement.style.scrollPaddingBottom = `${this.#cover.offsetHeight + keyboard}px`;
    if (!this.#cover.checkVisibility()) return;
    const missing = this.#missing();
    if (this.#isFollowing && missing > 0) {
      scrollBy({ top: missing, behavior: "instant" });
      this.#top = scrollY;
    }
    this.#told();
  }

  #scrolled() {
    if (!this.#cover.checkVisibility()) return;
    const hasGoneUp = scrollY < this.#top - TOLERANCE;
    // A page that becomes shorter scrolls up by itself. Its end is then in view.
    if (hasGoneUp || !this.#isFollowing) this.#isFollowing = this.#missing() <= TOLERANCE;
    if (hasGoneUp || scrollY > this.#top) this.#top = scrollY;
    this.#told();
  }

  #clicked({ target }: MouseEvent) {
    const opened = (target as Element).closest("summary, .more");
    if (!opened) return;
    const { top } = opened.getBoundingClientRect();
    // An opened part has its size from the next frame on.
    requestAnimationFrame(() => {
      if (this.#missing() > top) this.#isFollowing = false;
      this.#told();
    });
  }

  #told() {
    const isAway = !this.#isFollowing && this.#missing() > TOLERANCE;
    if (isAway === this.#isAway) return;
    this.#isAway = isAway;
    this.#changed();
  }
}

/**
 * Pixels at the bottom of the page that a keyboard covers. Not all browsers make the page shorter for a keyboard.
 */
function keyboardHeight() {
  if (visualViewport?.scale !== 1) return 0;
  const { offsetTop, height } = visualViewport;
  return Math.max(0, Math.round(document.documentElement.clientHeight - offsetTop - height));
}
