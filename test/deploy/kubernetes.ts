import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { root } from "../workerd/tools.ts";
import { built, CACHE, whyNot } from "./go-program.ts";

/** Helm, kubeconform and the schemas of Kubernetes and of the Prometheus operator, without a cluster and without their sites. */

const HELM = { variable: "HELM", source: "helm.sh/helm/v3/cmd/helm@v3.19.0" };
const KUBECONFORM = { variable: "KUBECONFORM", source: "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0" };
/** Makes schemas from Go types. A Go module has the types of the Prometheus operator, but not its schemas. */
const CONTROLLER_GEN = {
  variable: "CONTROLLER_GEN",
  source: "sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1",
};
/** The package of PyPI that has the schemas. */
const SCHEMAS = "kubernetes-validate==1.37.0";

/** The version of Kubernetes that charts are rendered for and validated against. */
export const KUBERNETES = "1.37.0";

/** The reason why charts cannot be tested here. Undefined if they can. */
export function whyNoKubernetes(): string | undefined {
  const pip = spawnSync("python3", ["-m", "pip", "--version"]).status === 0;
  return (
    whyNot(HELM, KUBECONFORM, CONTROLLER_GEN) ??
    (pip ? undefined : "there is no pip, which fetches Kubernetes' schemas")
  );
}

/** Makes the programs and schemas that `helm` and `validate` need. Takes minutes the first time. */
export function prepare(): { helm(...args: string[]): HelmOutcome; validate(file: string): string } {
  const [helm, kubeconform] = [built(HELM), built(KUBECONFORM)];
  const locations = [standaloneSchemas(), monitorSchema()].flatMap((folder) => [
    "-schema-location",
    `${folder}/{{.ResourceKind}}{{.KindSuffix}}.json`,
  ]);
  return {
    helm(...args) {
      const { status, stdout, stderr } = spawnSync(helm, args, { encoding: "utf8" });
      return { status, stdout, stderr };
    },
    validate(file) {
      const options = ["-strict", "-summary", "-kubernetes-version", KUBERNETES];
      const { stdout, stderr } = spawnSync(kubeconform, [...options, ...locations, file], { encoding: "utf8" });
      return stdout + stderr;
    },
  };
}

export interface HelmOutcome {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** Makes a folder with a self-contained file for each kind, because kubeconform follows no references between files. */
function standaloneSchemas(): string {
  const folder = join(CACHE, SCHEMAS.replace("==", "-"));
  const into = join(folder, "standalone");
  if (existsSync(into)) return into;
  execFileSync("python3", ["-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, SCHEMAS]);
  const from = join(folder, `kubernetes_validate/kubernetes-json-schema/v${KUBERNETES}-local-strict`);
  const { $defs } = JSON.parse(readFileSync(join(from, "_definitions.json"), "utf8"));
  mkdirSync(into);
  for (const kind of readdirSync(from)) {
    const text = readFileSync(join(from, kind), "utf8").replaceAll("/api/_definitions.json#/", "#/");
    const { $id: _, ...schema } = JSON.parse(text);
    if (!schema["x-kubernetes-group-version-kind"] || kind.includes("list-")) continue;
    writeFileSync(join(into, kind), JSON.stringify({ ...schema, $defs: reachable(text, $defs) }));
  }
  return into;
}

/** Makes a folder with the schema of a ServiceMonitor, from the types of the Prometheus operator. Takes minutes the first time. */
function monitorSchema(): string {
  const module = join(root, "test/deploy/monitor");
  const [, version = ""] = /apis\/monitoring (v\S+)/.exec(readFileSync(join(module, "go.mod"), "utf8")) ?? [];
  const folder = join(CACHE, `prometheus-operator-${version}`);
  const schema = join(folder, "servicemonitor-monitoring-v1.json");
  if (existsSync(schema)) return folder;
  const source = "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1";
  execFileSync(built(CONTROLLER_GEN), ["crd", `paths=${source}`, `output:crd:dir=${folder}`], { cwd: module });
  const { spec } = parse(readFileSync(join(folder, "monitoring.coreos.com_servicemonitors.yaml"), "utf8"));
  writeFileSync(schema, JSON.stringify(closed(spec.versions[0].schema.openAPIV3Schema)));
  return folder;
}

/** Gives a schema that takes only the fields that it names, as `-strict` means it. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== "object" || schema === null) return schema;
  const entries = Object.entries(schema).map(([name, value]) => [name, closed(value)]);
  const isClosed = "properties" in schema && !("additionalProperties" in schema);
  return { ...Object.fromEntries(entries), ...(isClosed && { additionalProperties: false }) };
}

/** The definitions that a schema needs. With all definitions kubeconform would take seconds for a kind. */
function reachable(text: string, all: Record<string, object>): Record<string, object> {
  const found: Record<string, object> = {};
  const texts = [text];
  for (let next = texts.pop(); next !== undefined; next = texts.pop()) {
    for (const [, name = ""] of next.matchAll(/"#\/\$defs\/([^"]+)"/g)) {
      const definition = all[name];
      if (!definition || found[name]) continue;
      found[name] = definition;
      texts.push(JSON.stringify(definition));
    }
  }
  return found;
}
