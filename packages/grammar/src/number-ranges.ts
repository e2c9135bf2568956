import { charSet, chars, choice, type Expression, NOTHING, repeat, sequence, text } from "./expression.ts";

/** JSON numbers within a range, as expressions over their digits. */

/** A range of numbers. `isInteger`: only integers, written as digits without a fraction. */
export interface NumberRange {
  isInteger: boolean;
  /** Undefined without a bound. */
  min?: Limit | undefined;
  max?: Limit | undefined;
}

/** A bound. `isExcluded`: the numbers of the range do not reach it. */
export interface Limit {
  value: number;
  isExcluded: boolean;
}

/** A bound that is not negative, in decimal digits. The fraction has no zeros at its end. */
interface Decimal {
  whole: string;
  fraction: string;
  isExcluded: boolean;
}

/** The maximum of digits of a bound. */
const MAX_DIGITS = 40;

/** Decimal fractions of as many significant digits are different doubles. */
const EXACT_DIGITS = 15;

/** The maximum of zeros that may stand between an excluded bound and the digit that tells a number from it. */
const MAX_ZEROS = 6;

const DIGIT = digits(0, 9);
const WHOLE = choice([text("0"), sequence([digits(1, 9), some(DIGIT)])]);
const MINUS = repeat(text("-"), 0, 1);
const FRACTION = sequence([text("."), repeat(DIGIT, 1, Number.POSITIVE_INFINITY)]);
const EXPONENT = sequence([
  choice([text("e"), text("E")]),
  repeat(choice([text("+"), text("-")]), 0, 1),
  repeat(DIGIT, 1, Number.POSITIVE_INFINITY),
]);

/** Every JSON number. */
export const ANY_NUMBER = sequence([MINUS, WHOLE, repeat(FRACTION, 0, 1), repeat(EXPONENT, 0, 1)]);

/** Integers as models write them. */
const ANY_INTEGER = sequence([MINUS, WHOLE]);

/** Integers in every form that needs no arithmetic: `1.00` and `1e+2`. */
export const INTEGER_IN_ANY_FORM = sequence([
  MINUS,
  WHOLE,
  choice([
    sequence([text("."), repeat(text("0"), 1, Number.POSITIVE_INFINITY)]),
    sequence([choice([text("e"), text("E")]), repeat(text("+"), 0, 1), repeat(DIGIT, 1, Number.POSITIVE_INFINITY)]),
    NOTHING,
  ]),
]);

/**
 * The numbers of a range: those without a bound in every form (integers only as digits), others without exponents, and
 * fractions of at most 15 significant digits, which are different doubles. Undefined if a bound has more than 40
 * digits. A range without a number gives an expression without a text.
 */
export function numbersIn({ isInteger, min, max }: NumberRange): Expression | undefined {
  if (!min && !max) return isInteger ? ANY_INTEGER : ANY_NUMBER;
  const low = isInteger ? wholeLimit(min, Math.ceil, 1) : min;
  const high = isInteger ? wholeLimit(max, (value) => Math.floor(value), -1) : max;
  if (low && high && (low.value > high.value || (low.value === high.value && (low.isExcluded || high.isExcluded)))) {
    return choice([]);
  }
  const positive = between(low, high, isInteger);
  const negative = between(mirrored(high), mirrored(low), isInteger);
  return positive && negative && choice([positive, sequence([text("-"), negative])]);
}

/** The bound of integers that comes first within a bound. */
function wholeLimit(limit: Limit | undefined, round: (value: number) => number, step: number): Limit | undefined {
  if (!limit) return undefined;
  const isOutside = limit.isExcluded && Number.isInteger(limit.value);
  return { value: isOutside ? limit.value + step : round(limit.value), isExcluded: false };
}

function mirrored(limit: Limit | undefined): Limit | undefined {
  return limit && { value: -limit.value, isExcluded: limit.isExcluded };
}

/** The numbers of a range that are not negative. */
function between(min: Limit | undefined, max: Limit | undefined, isInteger: boolean): Expression | undefined {
  if (max && (max.value < 0 || (max.value === 0 && max.isExcluded))) return choice([]);
  const low = decimalOf(min && min.value >= 0 ? min : { value: 0, isExcluded: false });
  const high = max && decimalOf(max);
  if (!low || (max && !high)) return undefined;
  return new Between(low, high, isInteger).write();
}

function decimalOf({ value, isExcluded }: Limit): Decimal | undefined {
  const [mantissa = "", exponent = "0"] = String(Math.abs(value)).split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  const shift = Number(exponent);
  if (!Number.isFinite(value) || Math.abs(shift) > MAX_DIGITS) return undefined;
  const all = "0".repeat(Math.max(0, -shift)) + whole + fraction + "0".repeat(Math.max(0, shift));
  const point = whole.length + shift + Math.max(0, -shift);
  const decimal = {
    whole: all.slice(0, point).replace(/^0+(?=\d)/, "") || "0",
    fraction: all.slice(point).replace(/0+$/, ""),
    isExcluded,
  };
  return decimal.whole.length + decimal.fraction.length > MAX_DIGITS ? undefined : decimal;
}

/** Digits so far equal those of the lower bound, or of the upper one. */
interface Tight {
  low: boolean;
  high: boolean;
}

const FREE: Tight = { low: false, high: false };

class Between {
  readonly #low: Decimal;
  readonly #high: Decimal | undefined;
  readonly #isInteger: boolean;

  constructor(low: Decimal, high: Decimal | undefined, isInteger: boolean) {
    this.#low = low;
    this.#high = high;
    this.#isInteger = isInteger;
  }

  write(): Expression {
    const first = this.#low.whole.length;
    const last = this.#high?.whole.length ?? Number.POSITIVE_INFINITY;
    if (last < first) return choice([]);
    const options = [this.#whole(0, first, { low: true, high: first === last })];
    if (last - 1 > first) {
      const more = repeat(DIGIT, first, last - 2);
      options.push(sequence([digits(1, 9), more, this.#isInteger ? NOTHING : this.#fraction(0, first + 1, FREE)]));
    }
    if (last > first && Number.isFinite(last)) options.push(this.#whole(0, last, { low: false, high: true }));
    return choice(options);
  }

  /** The digits from `at` on of a number whose whole part has `length` digits. */
  #whole(at: number, length: number, tight: Tight): Expression {
    if (at === length) return this.#isInteger ? NOTHING : this.#fraction(0, length, tight);
    const least = at === 0 && length > 1 ? 1 : 0;
    const low = tight.low ? Number(this.#low.whole[at]) : least;
    const high = tight.high ? Number(this.#high?.whole[at]) : 9;
    return this.#digit(low, high, tight, (next) => this.#whole(at + 1, length, next));
  }

  /** The fraction after `at` of its digits. */
  #fraction(at: number, length: number, given: Tight): Expression {
    const low = given.low ? this.#low.fraction.slice(at) : "";
    const high = given.high ? (this.#high?.fraction.slice(at) ?? "") : "";
    // Nothing that follows makes it less.
    const tight = { low: given.low && (low !== "" || this.#low.isExcluded), high: given.high };
    const isHighest = tight.high && high === "";
    const canEnd = !tight.low && !(isHighest && this.#high?.isExcluded);
    const left = Math.max(1, EXACT_DIGITS - length) - at;
    let more: Expression;
    if (isHighest) more = canEnd ? repeat(text("0"), 1, MAX_ZEROS) : choice([]);
    else if (!tight.low && !tight.high) more = left > 0 ? repeat(DIGIT, 1, left) : choice([]);
    else if (low === "" && tight.low && at >= this.#low.fraction.length + MAX_ZEROS) more = digits(1, 9);
    else {
      const [least, most] = [tight.low ? Number(low[0] ?? 0) : 0, tight.high ? Number(high[0] ?? 0) : 9];
      more = this.#digit(least, most, tight, (next) => this.#fraction(at + 1, length, next));
    }
    const written = at === 0 ? sequence([text("."), more]) : more;
    return canEnd ? choice([written, NOTHING]) : written;
  }

  /** One digit from `low` to `high`, and the rest after it. */
  #digit(low: number, high: number, tight: Tight, rest: (tight: Tight) => Expression): Expression {
    if (low > high) return choice([]);
    if (low === high) return sequence([text(String(low)), rest(tight)]);
    const options: Expression[] = [];
    if (tight.low) options.push(sequence([text(String(low)), rest({ low: true, high: false })]));
    const [first, last] = [tight.low ? low + 1 : low, tight.high ? high - 1 : high];
    if (first <= last) options.push(sequence([digits(first, last), rest(FREE)]));
    if (tight.high) options.push(sequence([text(String(high)), rest({ low: false, high: true })]));
    return choice(options);
  }
}

function digits(first: number, last: number): Expression {
  return chars(charSet([[0x30 + first, 0x30 + last]]));
}

function some(part: Expression): Expression {
  return repeat(part, 0, Number.POSITIVE_INFINITY);
}
