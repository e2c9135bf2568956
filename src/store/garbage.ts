/**
 * The memory of long texts that nobody needs any more. On a machine of one's own V8 may take gigabytes, and it lets what died in its
 * old generation lie until nearly all of that is full: forty requests of 10 MB, one after another, left 1.2 GB. So it is told to
 * collect when so much has passed. The launcher's flags (`cli/workerd.ts`) let it be told; elsewhere there is no `gc`, and the
 * limits of an isolate are the platform's.
 */

/** A shorter text dies in the young generation. UTF-16 units. */
const MIN_LENGTH = 64 * 1024;

/** So much is left to lie. A request of 10 MB leaves three times its length; a collection takes tens of milliseconds. */
const MAX_GARBAGE_LENGTH = 64 * 1024 * 1024;

let passed = 0;

/** A text of so many UTF-16 units was read or written. */
export function notePassed(length: number): void {
  if (length < MIN_LENGTH) return;
  passed += length;
  if (passed < MAX_GARBAGE_LENGTH) return;
  passed = 0;
  globalThis.gc?.();
}
