//! The control: runs a probe in this process, outside any sandbox, and prints what it found.
//! node run.mjs <probe> [args as JSON]
import { probe } from './probes.mjs';

const [name, args = '{}'] = process.argv.slice(2);
process.stdout.write(`${JSON.stringify(await probe(name, JSON.parse(args)))}\n`);
