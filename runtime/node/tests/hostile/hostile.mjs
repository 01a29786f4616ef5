//! A plugin that runs the probe its arguments name: {probe, args}. What it finds is its result.
import { tool } from '@asp/plugin';
import { probe } from './probes.mjs';

export default tool(({ probe: name, args = {} }, ctx) => probe(name, { directory: ctx.workDir, ...args }));
