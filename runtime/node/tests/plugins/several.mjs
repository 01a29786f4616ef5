import { prompt, resource, tool } from '@asp/plugin';
import { loads } from './several/loads.mjs';

loads.push('several');

export const forecast = tool(({ city }) => ({ city, loads }));
export const listOrders = tool((_args, ctx) => ctx.elicit('region'), { checkpoint: true });
export const stations = resource({ read: () => 'a station', list: () => [{ uri: 'station://1', name: 'one' }] });
export const areas = resource({ read: () => 'an area', list: () => [{ uri: 'area://n', name: 'north' }] });
export const letter = prompt(({ name }) => `Dear ${name}`);
