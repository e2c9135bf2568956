/**
 * Formats of strings in JSON Schema. Only what certainly is not of its format is found out: no calendar is asked.
 * Each expression takes time that is linear in the text.
 */

const DATE = String.raw`\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])`;
const TIME = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`;
const NUMBER = String.raw`\d+(?:[.,]\d+)?`;

const EXPRESSIONS: Readonly<Record<string, RegExp>> = {
  date: new RegExp(`^${DATE}$`),
  time: new RegExp(`^${TIME}$`, "i"),
  "date-time": new RegExp(`^${DATE}[T ]${TIME}$`, "i"),
  duration: new RegExp(
    `^P(?!$)(?:${NUMBER}W|(?:${NUMBER}Y)?(?:${NUMBER}M)?(?:${NUMBER}D)?(?:T(?!$)(?:${NUMBER}H)?(?:${NUMBER}M)?(?:${NUMBER}S)?)?)$`,
  ),
  email: /^.+@[^\s@]+$/s,
  hostname: /^[\w-]{1,63}(?:\.[\w-]{1,63})*\.?$/,
  ipv4: /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/,
  ipv6: /^[\da-f:.]{2,45}$/i,
  uuid: /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/i,
  uri: /^[a-z][a-z\d+.-]*:\S*$/i,
};

/** Tells whether a text may be of a format; undefined for one that is not examined. */
export function mayBeOfFormat(text: string, format: unknown): boolean | undefined {
  if (typeof format !== "string" || !Object.hasOwn(EXPRESSIONS, format)) return undefined;
  if (EXPRESSIONS[format]?.test(text) === false) return false;
  return format !== "ipv6" || URL.canParse(`http://[${text}]/`);
}
