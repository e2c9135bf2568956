import type { Config } from "../config/index.ts";
import { hasHost, type Policy } from "../contract/grants.ts";
import { hostedKinds } from "../protocol/hosted-tools.ts";

const restricted = new WeakMap<Policy, { of: Config; config: Config }>();

/** The configuration as it is for a caller: what its policy leaves of it. Made once for a policy. */
export function restrictedConfig(config: Config, policy: Policy | undefined): Config {
  if (!policy) return config;
  const known = restricted.get(policy);
  if (known?.of === config) return known.config;
  const made = restrict(config, policy);
  restricted.set(policy, { of: config, config: made });
  return made;
}

function restrict(config: Config, { hostedTools, mcpHosts, vllmExtras }: Policy): Config {
  const { tools } = config;
  const kinds = hostedTools && hostedKinds(hostedTools);
  return {
    ...config,
    tools: {
      ...tools,
      ...(kinds && { offeredKinds: new Set([...tools.offeredKinds].filter((kind) => kinds.has(kind))) }),
      ...(mcpHosts.length > 0 && { mayCallMcp: (url: URL) => mcpHosts.every((hosts) => hasHost(hosts, url)) }),
    },
    ...(vllmExtras && { vllmExtras: new Set(vllmExtras) }),
  };
}
