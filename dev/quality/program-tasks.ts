/** Tasks that need many calls of tools, each with the program that does it. Their data are made by rules. */

export interface ProgramTask {
  name: string;
  question: string;
  /** The tools: what they give for their arguments. */
  tools: Record<string, (args: Record<string, number | string>) => unknown>;
  /** The body of an async function. */
  code: string;
}

const words = "amber birch cedar delta ember flint grove heron iris juniper kelp larch maple nettle olive pine".split(
  " ",
);
const word = (index: number) => words[index % words.length] ?? "";
const list = <T>(length: number, make: (index: number) => T) => Array.from({ length }, (_, index) => make(index));
/** A text as long as a page of notes. */
const page = (seed: number) => list(160, (index) => word(seed * 7 + index * index)).join(" ");

export const TASKS: readonly ProgramTask[] = [
  {
    name: "sold out",
    question: "Which of the articles A0 to A49 are sold out?",
    tools: { get_stock: ({ sku }) => ({ sku, left: Number(String(sku).slice(1)) % 9, warehouse: "north", shelf: 4 }) },
    code: `const skus = Array.from({ length: 50 }, (_, i) => "A" + i);
const all = await Promise.all(skus.map((sku) => tools.get_stock({ sku })));
return all.filter(({ left }) => left === 0).map(({ sku }) => sku);`,
  },
  {
    name: "over budget",
    question: "Which of the 20 employees have spent more than their budget?",
    tools: {
      get_expenses: ({ employee }) =>
        list(12, (index) => ({
          date: `2026-0${(index % 9) + 1}-04`,
          text: page(index).slice(0, 60),
          amount: Number(employee) * 10 + index,
        })),
      get_budget: () => ({ budget: 1_200 }),
    },
    code: `const over = [];
await Promise.all(Array.from({ length: 20 }, async (_, employee) => {
  const [expenses, { budget }] = await Promise.all([tools.get_expenses({ employee }), tools.get_budget({ employee })]);
  if (expenses.reduce((sum, { amount }) => sum + amount, 0) > budget) over.push(employee);
}));
return over.sort((a, b) => a - b);`,
  },
  {
    name: "cheapest flight",
    question: "What is the cheapest of the flights on these 12 days?",
    tools: {
      get_flights: ({ day }) =>
        list(8, (index) => ({
          flight: `X${day}${index}`,
          price: 90 + ((Number(day) * 31 + index * 17) % 140),
          seats: index,
          via: word(index),
        })),
    },
    code: `const days = await Promise.all(Array.from({ length: 12 }, (_, day) => tools.get_flights({ day })));
return days.flat().sort((a, b) => a.price - b.price)[0];`,
  },
  {
    name: "all pages of a list",
    question: "How many open tickets are there in the list?",
    tools: {
      list_tickets: ({ page: at }) => ({
        tickets: list(20, (index) => ({
          id: Number(at) * 20 + index,
          open: index % 3 === 0,
          title: page(index).slice(0, 50),
        })),
        next: Number(at) < 7 ? Number(at) + 1 : null,
      }),
    },
    code: `let open = 0;
for (let page = 0; page !== null; ) {
  const { tickets, next } = await tools.list_tickets({ page });
  open += tickets.filter((each) => each.open).length;
  page = next;
}
return open;`,
  },
  {
    name: "first bad build",
    question: "Which of the builds 0 to 1023 is the first that fails?",
    tools: { get_build: ({ build }) => ({ build, ok: Number(build) < 617, log: page(Number(build)) }) },
    code: `let low = 0, high = 1023;
while (low < high) {
  const middle = (low + high) >> 1;
  if ((await tools.get_build({ build: middle })).ok) low = middle + 1; else high = middle;
}
return low;`,
  },
  {
    name: "shortest way",
    question: "How many hops are there from node 1 to node 40?",
    tools: {
      get_neighbours: ({ node }) => ({
        node,
        neighbours: [Number(node) * 2, Number(node) + 3].filter((each) => each <= 60),
      }),
    },
    code: `const hops = new Map([[1, 0]]);
for (let edge = [1]; edge.length > 0 && !hops.has(40); ) {
  const found = await Promise.all(edge.map((node) => tools.get_neighbours({ node })));
  const next = [];
  for (const { node, neighbours } of found) for (const each of neighbours) {
    if (!hops.has(each)) { hops.set(each, hops.get(node) + 1); next.push(each); }
  }
  edge = next;
}
return hops.get(40);`,
  },
  {
    name: "warmest city",
    question: "Which of 30 cities has the warmest week?",
    tools: {
      get_weather: ({ city }) => ({
        city,
        days: list(7, (day) => ({
          day,
          high: 10 + ((Number(city) * 7 + day * 3) % 19),
          low: 4,
          wind: "west",
          rain: day % 2 === 0,
        })),
      }),
    },
    code: `const all = await Promise.all(Array.from({ length: 30 }, (_, city) => tools.get_weather({ city })));
const mean = ({ days }) => days.reduce((sum, { high }) => sum + high, 0) / days.length;
return all.sort((a, b) => mean(b) - mean(a))[0].city;`,
  },
  {
    name: "same address twice",
    question: "Which addresses are in more than one of the 10 mailing lists?",
    tools: {
      get_list: ({ list: at }) => ({
        addresses: list(25, (index) => `${word(index * 3 + Number(at))}${(index * Number(at)) % 23}@example.com`),
      }),
    },
    code: `const lists = await Promise.all(Array.from({ length: 10 }, (_, list) => tools.get_list({ list })));
const seen = new Map();
for (const { addresses } of lists) for (const each of new Set(addresses)) seen.set(each, (seen.get(each) ?? 0) + 1);
return [...seen].filter(([, count]) => count > 5).map(([each]) => each).sort().slice(0, 5);`,
  },
  {
    name: "words of documents",
    question: "In which of 15 documents does 'heron' stand most often?",
    tools: { read_document: ({ document }) => page(Number(document)) },
    code: `const count = async (document) => (await tools.read_document({ document })).split("heron").length - 1;
const counts = await Promise.all(Array.from({ length: 15 }, (_, document) => count(document)));
return counts.indexOf(Math.max(...counts));`,
  },
  {
    name: "users and orders",
    question: "Which user of the first 12 has ordered for most?",
    tools: {
      get_user: ({ user }) => ({
        user,
        name: `${word(Number(user))} ${word(Number(user) + 5)}`,
        city: word(Number(user) * 3),
        since: 2019,
      }),
      get_orders: ({ user }) =>
        list(9, (index) => ({
          order: index,
          total: ((Number(user) * 37 + index * 11) % 90) + 5,
          items: list(3, word),
        })),
    },
    code: `const sums = await Promise.all(Array.from({ length: 12 }, async (_, user) => {
  const orders = await tools.get_orders({ user });
  return { user, sum: orders.reduce((sum, { total }) => sum + total, 0) };
}));
const best = sums.sort((a, b) => b.sum - a.sum)[0];
return { ...best, name: (await tools.get_user({ user: best.user })).name };`,
  },
  {
    name: "sum in euros",
    question: "What do the 16 invoices come to in euros?",
    tools: {
      get_invoice: ({ invoice }) => ({
        invoice,
        amount: 100 + Number(invoice) * 7,
        currency: ["EUR", "USD", "GBP"][Number(invoice) % 3],
        lines: list(6, (index) => ({ text: word(index), amount: index })),
      }),
      get_rate: ({ currency }) => ({ rate: currency === "EUR" ? 1 : currency === "USD" ? 0.9 : 1.15 }),
    },
    code: `const invoices = await Promise.all(Array.from({ length: 16 }, (_, invoice) => tools.get_invoice({ invoice })));
const rates = {};
for (const currency of new Set(invoices.map((each) => each.currency))) rates[currency] = (await tools.get_rate({ currency })).rate;
return Math.round(invoices.reduce((sum, { amount, currency }) => sum + amount * rates[currency], 0));`,
  },
  {
    name: "wait for a job",
    question: "Start the job and tell me its result.",
    tools: {
      start_job: () => ({ job: 7 }),
      get_job: ({ tries }) =>
        Number(tries) < 9 ? { state: "running", log: page(Number(tries)) } : { state: "done", result: 42 },
    },
    code: `const { job } = await tools.start_job({});
for (let tries = 0; ; tries += 1) {
  const { state, result } = await tools.get_job({ job, tries });
  if (state === "done") return result;
}`,
  },
  {
    name: "best rated",
    question: "Which three of 40 products are rated best?",
    tools: {
      get_product: ({ product }) => ({
        product,
        rating: (Number(product) * 13) % 50,
        text: page(Number(product)).slice(0, 300),
      }),
    },
    code: `const all = await Promise.all(Array.from({ length: 40 }, (_, product) => tools.get_product({ product })));
return all.sort((a, b) => b.rating - a.rating).slice(0, 3).map(({ product, rating }) => ({ product, rating }));`,
  },
  {
    name: "size of a folder",
    question: "How large are all files below '/'?",
    tools: {
      list_folder: ({ path }) => ({
        folders: String(path).split("/").length < 4 ? [`${path}a/`, `${path}b/`] : [],
        files: list(10, (index) => ({ name: `${word(index)}.txt`, size: index * 100 })),
      }),
    },
    code: `const size = async (path) => {
  const { folders, files } = await tools.list_folder({ path });
  const below = await Promise.all(folders.map(size));
  return files.reduce((sum, file) => sum + file.size, 0) + below.reduce((a, b) => a + b, 0);
};
return size("/");`,
  },
  {
    name: "difference of two lists",
    question: "Which hosts are in the inventory and not in monitoring?",
    tools: {
      get_inventory: ({ page: at }) => list(40, (index) => `host-${Number(at) * 40 + index}`),
      get_monitored: ({ page: at }) => list(39, (index) => `host-${Number(at) * 40 + index}`),
    },
    code: `const pages = [0, 1, 2, 3];
const [inventory, monitored] = await Promise.all([
  Promise.all(pages.map((page) => tools.get_inventory({ page }))),
  Promise.all(pages.map((page) => tools.get_monitored({ page }))),
]);
const known = new Set(monitored.flat());
return inventory.flat().filter((host) => !known.has(host));`,
  },
  {
    name: "tax of bills",
    question: "What is the tax of the 25 bills?",
    tools: {
      get_bill: ({ bill }) => ({
        bill,
        net: 50 + Number(bill) * 3,
        rate: Number(bill) % 2 ? 7 : 19,
        seller: page(Number(bill)).slice(0, 80),
      }),
    },
    code: `const bills = await Promise.all(Array.from({ length: 25 }, (_, bill) => tools.get_bill({ bill })));
return Math.round(bills.reduce((sum, { net, rate }) => sum + (net * rate) / 100, 0) * 100) / 100;`,
  },
  {
    name: "chain of managers",
    question: "Who is above employee 300, up to the head of the company?",
    tools: {
      get_employee: ({ id }) => ({
        id,
        name: word(Number(id)),
        manager: Number(id) > 1 ? Number(id) >> 1 : null,
        notes: page(Number(id)).slice(0, 200),
      }),
    },
    code: `const names = [];
for (let { manager } = await tools.get_employee({ id: 300 }); manager !== null; ) {
  const above = await tools.get_employee({ id: manager });
  names.push(above.name);
  manager = above.manager;
}
return names;`,
  },
  {
    name: "search and read",
    question: "Which of the results for 'maple' tells of 'olive' first?",
    tools: {
      search: () => ({ results: list(10, (index) => ({ id: index, title: word(index) })) }),
      read: ({ id }) => page(Number(id) + 3),
    },
    code: `const { results } = await tools.search({ query: "maple" });
const texts = await Promise.all(results.map(({ id }) => tools.read({ id })));
const at = texts.map((text) => text.indexOf("olive")).map((index) => (index < 0 ? Infinity : index));
return results[at.indexOf(Math.min(...at))].id;`,
  },
  {
    name: "busiest hour",
    question: "In which hour of the day were most requests?",
    tools: {
      get_metrics: ({ hour }) => ({
        hour,
        requests: (Number(hour) * 41) % 97,
        p50: 12,
        p99: 80,
        errors: list(4, word),
        series: list(12, (index) => index * Number(hour)),
      }),
    },
    code: `const hours = await Promise.all(Array.from({ length: 24 }, (_, hour) => tools.get_metrics({ hour })));
return hours.sort((a, b) => b.requests - a.requests)[0].hour;`,
  },
  {
    name: "broken links",
    question: "Which links of the 6 pages are broken?",
    tools: {
      get_links: ({ page: at }) => list(4, (index) => `https://example.com/${at}/${word(index)}`),
      check: ({ url }) => ({
        url,
        status: String(url).length % 5 === 0 ? 404 : 200,
        headers: { server: "x", date: "2026-11-30", etag: word(String(url).length) },
      }),
    },
    code: `const pages = await Promise.all(Array.from({ length: 6 }, (_, page) => tools.get_links({ page })));
const checked = await Promise.all(pages.flat().map((url) => tools.check({ url })));
return checked.filter(({ status }) => status === 404).map(({ url }) => url);`,
  },
];
