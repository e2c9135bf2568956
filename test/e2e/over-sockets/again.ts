/**
 * The facts of what goes wrong between the gateway and its model server, once more, over the other transport (transport.ts). All
 * else takes one of the two.
 */

/** Defines the tests of another file here. A module is evaluated again if its URL is another one. */
export async function again(name: string): Promise<void> {
  await import(`../${name}.test.ts?over-sockets`);
}
