// Runs scenarios against one base URL and prints one JSON document: for each scenario all that the SDK gave to its
// caller, and all that its HTTP answers said. What differs between two runs differs for a user of the SDK.
//
// The argument is a JSON object: baseURL (with /v1), session (true: every conversation has an X-Session-Id), only (names
// of scenarios; absent: all), control (a URL that lets a stalled upstream go on).
import { context } from './context.mjs';
import * as chat from './chat.mjs';
import * as responses from './responses.mjs';
import * as others from './others.mjs';
import * as faults from './faults.mjs';
import * as aisdk from './aisdk.mjs';
import * as live from './live.mjs';
import * as layers from './layers.mjs';

const options = JSON.parse(process.argv[2]);
const groups = { chat, responses, others, faults, aisdk, live, layers };
// live wants a control URL, layers want layers.
const special = ['live', 'layers'];
const results = {};
for (const [group, scenarios] of Object.entries(groups)) {
  for (const [name, scenario] of Object.entries(scenarios)) {
    const full = `${group}.${name}`;
    if (options.only ? !options.only.includes(full) : special.includes(group)) continue;
    const x = context(full, options);
    try {
      x.record.result = await scenario(x);
    } catch (error) {
      x.record.thrown = x.describe(error);
    }
    results[full] = x.record;
  }
}
process.stdout.write(JSON.stringify(results));
