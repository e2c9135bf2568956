/** A style sheet as text: `import rules from "….css" with { type: "text" }`. */
declare module "*.css" {
  const text: string;
  export default text;
}
