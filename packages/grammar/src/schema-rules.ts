import { choice, type Expression, repeat, sequence, text } from "./expression.ts";
import { IMPOSSIBLE, JsonRules, SPACE } from "./json-rules.ts";
import { ANY_NUMBER, type Limit, numbersIn } from "./number-ranges.ts";
import { SchemaObjects } from "./schema-objects.ts";
import { type JsonType, SchemaShapes, type Schemas, type Shape } from "./schema-shapes.ts";
import { SchemaStrings } from "./schema-strings.ts";

/** JSON texts of a schema, as rules: one for each value of which the same parts of the schema hold. */
export class SchemaRules {
  readonly rules = new JsonRules();
  readonly shapes: SchemaShapes;
  readonly strings: SchemaStrings;
  readonly objects = new SchemaObjects(this);
  readonly #lists = new Map<Shape, number>();

  constructor(root: unknown) {
    this.shapes = new SchemaShapes(root);
    this.strings = new SchemaStrings(this.shapes.unenforced);
  }

  /** A whole value of which some schemas hold. */
  value(schemas: Schemas): Expression {
    return this.rules.named(`value_${this.shapes.key(schemas)}`, () =>
      choice(
        this.shapes.shapes(schemas).map((shape) => choice([...shape.types].map((type) => this.#typed(type, shape)))),
      ),
    );
  }

  #typed(type: JsonType, shape: Shape): Expression {
    switch (type) {
      case "object":
        return sequence([text("{"), SPACE, this.objects.first(shape, new Set(), true)]);
      case "array":
        return sequence([text("["), SPACE, this.firstItems(shape, 0, true)]);
      case "string": {
        const rules = this.strings.of(shape).rest("");
        return rules ? sequence([text('"'), this.rules.strings(rules)]) : IMPOSSIBLE;
      }
      case "number":
        return this.numbers(shape);
      case "boolean":
      case "null":
        return choice(this.words(type, shape).map(text));
    }
  }

  /** The keywords of a type. */
  words(type: "boolean" | "null", { scalars }: Shape): string[] {
    if (!scalars) return type === "null" ? ["null"] : ["true", "false"];
    return scalars.filter((value) => (type === "null" ? value === null : typeof value === "boolean")).map(String);
  }

  /** The numbers of a shape. */
  numbers(shape: Shape): Expression {
    const { scalars, isInteger } = shape;
    if (scalars) {
      const numbers = scalars.filter((value) => typeof value === "number");
      return choice(numbers.map((value) => text(JSON.stringify(value))));
    }
    const found = numbersIn({ isInteger, ...this.limits(shape) });
    if (!found) this.shapes.unenforced.add("minimum").add("maximum");
    return found ?? ANY_NUMBER;
  }

  /** The bounds of the numbers of a shape. */
  limits({ schemas }: Shape): { min: Limit | undefined; max: Limit | undefined } {
    const of = (keyword: string, isExcluded: boolean): Limit[] =>
      schemas.flatMap(({ [keyword]: value }) => (typeof value === "number" ? [{ value, isExcluded }] : []));
    const tightest = (sign: number, limits: Limit[]) =>
      limits.sort((a, b) => sign * (a.value - b.value) || Number(b.isExcluded) - Number(a.isExcluded))[0];
    return {
      min: tightest(-1, [...of("minimum", false), ...of("exclusiveMinimum", true)]),
      max: tightest(1, [...of("maximum", false), ...of("exclusiveMaximum", true)]),
    };
  }

  /** The schemas of an array's item. */
  itemSchemas({ schemas }: Shape, at: number): Schemas {
    return schemas.flatMap(({ prefixItems, items, additionalItems }) => {
      // Before 2020, `items` was the list of the first ones.
      const first = Array.isArray(prefixItems) ? prefixItems : Array.isArray(items) ? items : [];
      const others = Array.isArray(items) && !Array.isArray(prefixItems) ? additionalItems : items;
      const schema: unknown = at < first.length ? first[at] : others;
      return schema === undefined ? [] : [schema];
    });
  }

  /** The items after a bracket (`mayEnd`) or a comma, and the last bracket. `count`: those that have come. */
  firstItems(shape: Shape, count: number, mayEnd: boolean): Expression {
    const { min, max } = itemCounts(shape);
    const options: Expression[] = [];
    if (count < max) options.push(sequence([this.#item(shape, count), this.nextItems(shape, count + 1)]));
    if (mayEnd && min <= count) options.push(text("]"));
    return choice(options);
  }

  /** The items after a complete one, each after a comma, and the last bracket. */
  nextItems(shape: Shape, count: number): Expression {
    const { min, max, listed } = itemCounts(shape);
    if (count > max) return IMPOSSIBLE;
    if (count < listed) {
      const list = this.#lists.get(shape) ?? this.#lists.size;
      this.#lists.set(shape, list);
      return this.rules.named(`items_${list}_${count}`, () => {
        const end = min <= count ? text("]") : IMPOSSIBLE;
        if (count === max) return end;
        return choice([end, sequence([text(","), SPACE, this.#item(shape, count), this.nextItems(shape, count + 1)])]);
      });
    }
    const item = sequence([text(","), SPACE, this.#item(shape, count)]);
    return sequence([repeat(item, Math.max(0, min - count), max - count), text("]")]);
  }

  #item(shape: Shape, at: number): Expression {
    return sequence([this.value(this.itemSchemas(shape, at)), SPACE]);
  }
}

/** The bounds of the number of items, and the number of those that have schemas of their own. */
function itemCounts({ schemas }: Shape): { min: number; max: number; listed: number } {
  const limits = (keyword: string) => schemas.map((each) => each[keyword]).filter((limit) => typeof limit === "number");
  const lists = schemas.flatMap(({ prefixItems, items }) => [prefixItems, items].filter((each) => Array.isArray(each)));
  return {
    min: Math.ceil(Math.max(0, ...limits("minItems"))),
    max: Math.floor(Math.min(Number.POSITIVE_INFINITY, ...limits("maxItems"))),
    listed: Math.max(0, ...lists.map((list) => list.length)),
  };
}
