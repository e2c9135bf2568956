/** A time in Unix milliseconds as the API has times: in whole Unix seconds. */
export function unixSeconds(ms = Date.now()): number {
  return Math.floor(ms / 1000);
}
