/** A value as YAML: mappings and lists in blocks, all else as JSON, which is YAML, too. @param {unknown} value @param {string} [indent] @returns {string} */
export function yamlOf(value, indent = "") {
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
