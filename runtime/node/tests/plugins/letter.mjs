import { prompt } from '@asp/plugin';

export default prompt({
  get({ name, shape }) {
    if (shape === 'text') return `Write to ${name}`;
    if (shape === 'bad') return [{ role: 'system', content: 'x' }];
    if (shape === 'null') return { description: null, messages: [] };
    return { description: 'A letter', messages: [{ role: 'user', content: `Write to ${name}` }, { role: 'assistant', content: { type: 'image', data: 'AA==', mimeType: 'image/png' } }] };
  },
  complete: (argument, value) => (argument === 'name' ? Array.from({ length: 101 }, (_, n) => `${value}-${n}`) : null),
  list: () => [{ name: 'letter', title: 'Letter', description: 'Writes a letter' }],
});
