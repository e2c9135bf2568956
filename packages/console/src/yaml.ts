/** A value as YAML. Mappings and lists are blocks. All other values are JSON, which is valid YAML. */
export function yamlOf(value: unknown, indent: string = ""): string {
  if (typeof value !== "object" || value === null) return `${indent}${JSON.stringify(value)}\n`;
  const isList = Array.isArray(value);
  const lines = Object.entries(value)
    .filter(([, each]) => each !== undefined)
    .map(([name, each]) => {
      const head = indent + (isList ? "-" : `${/^[A-Za-z_][\w.-]*$/.test(name) ? name : JSON.stringify(name)}:`);
      const isBlock = typeof each === "object" && each !== null && Object.keys(each).length > 0;
      return isBlock ? `${head}\n${yamlOf(each, `${indent}  `)}` : `${head} ${JSON.stringify(each)}\n`;
    });
  return lines.join("");
}
