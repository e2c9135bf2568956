/** Shorter names resemble each other by chance. */
const MIN_LENGTH = 6;

/**
 * Gives the `names` that are not `known` and differ little from one that is: `[name, meant]`.
 */
export function misspelt(names: Iterable<string>, known: readonly string[]): [name: string, meant: string][] {
  return [...names].flatMap((name): [string, string][] => {
    if (name.length < MIN_LENGTH || known.includes(name)) return [];
    const meant = known.find((other) => isNear(name.toUpperCase().replaceAll("-", "_"), other));
    return meant === undefined ? [] : [[name, meant]];
  });
}

/** Whether one text becomes the other by at most two letters put in, left out or changed. */
function isNear(a: string, b: string, edits = 2): boolean {
  if (a === b) return true;
  if (edits === 0 || Math.abs(a.length - b.length) > edits) return false;
  let same = 0;
  while (a[same] !== undefined && a[same] === b[same]) same += 1;
  const [restA, restB] = [a.slice(same), b.slice(same)];
  return (
    isNear(restA.slice(1), restB, edits - 1) ||
    isNear(restA, restB.slice(1), edits - 1) ||
    isNear(restA.slice(1), restB.slice(1), edits - 1)
  );
}
