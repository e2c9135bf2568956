const BLOCK = 16;
const SALTS = 1000;

/** vLLM's prefix cache, as far as `cached_tokens` shows it. It keeps the last prompt of every `cache_salt`. */
export class PrefixCache {
  #last = new Map<string, readonly (string | number)[]>();

  /**
   * The number of cached tokens of `prompt` before and after this request: whole blocks of 16, and never the whole
   * prompt. Stores the prompt.
   */
  lookUp(salt: string, prompt: readonly (string | number)[]): { cached: number; created: number } {
    const before = this.#last.get(salt) ?? [];
    this.#last.delete(salt);
    this.#last.set(salt, prompt);
    if (this.#last.size > SALTS) {
      for (const oldest of this.#last.keys()) {
        this.#last.delete(oldest);
        break;
      }
    }
    const most = Math.min(before.length, prompt.length - 1);
    let common = 0;
    while (common < most && before[common] === prompt[common]) common++;
    const cached = common - (common % BLOCK);
    return { cached, created: Math.max(0, prompt.length - (prompt.length % BLOCK) - cached) };
  }

  /** Forgets everything. */
  clear(): void {
    this.#last.clear();
  }
}
