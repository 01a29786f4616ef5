//! Summarises one numeric column of a CSV text. It asks which one when the caller did not say and several would
//! do, reports progress, stops between batches when it is cancelled, and sends the unusual rows as an artifact.
import { setTimeout as pause } from 'node:timers/promises';
import { ToolError, tool, z } from '@asp/plugin';
import { formatTable, numberIn, parseTable } from './table.mjs';

const BATCH = 100;
/** Standard deviations from the mean beyond which a row is unusual. */
const UNUSUAL = 2;

const input = z.strictObject({
  csv: z.string().min(1).max(500_000).describe('The table; its first line names the columns'),
  column: z.string().optional().describe('The column to summarise; asked for when several are numeric'),
  delimiter: z.enum([',', ';', '|']).default(','),
  pauseMs: z.int().min(0).max(1000).default(0).describe('Pause after each hundred rows'),
});

const output = z.strictObject({
  column: z.string(),
  rows: z.int().min(0).describe('Rows of the table'),
  count: z.int().min(0).describe('Rows with a number in the column'),
  sum: z.number(),
  mean: z.number(),
  min: z.number(),
  max: z.number(),
  unusual: z.int().min(0).describe('Rows more than two standard deviations from the mean'),
  report: z.url().optional().describe('Where the unusual rows are'),
});

export default tool({ input, output }, async ({ csv, column, delimiter, pauseMs }, ctx) => {
  ctx.status('reading');
  const table = read(csv, delimiter);
  const chosen = await chooseColumn(table, column, ctx);
  const index = table.columns.indexOf(chosen);

  ctx.status('summarising', { column: chosen });
  const values = [];
  for (let start = 0; start < table.rows.length; start += BATCH) {
    for (const row of table.rows.slice(start, start + BATCH)) values.push(numberIn(row[index]));
    ctx.progress((90 * values.length) / table.rows.length, `${values.length} of ${table.rows.length} rows`, { rows: values.length });
    // Lets a cancel in, and ends here when there was one.
    await pause(pauseMs, undefined, { signal: ctx.signal });
  }

  const summary = summarise(values);
  const unusual = table.rows.filter((_row, n) => isUnusual(values[n], summary));
  const found = { column: chosen, rows: table.rows.length, ...summary.output, unusual: unusual.length };
  if (unusual.length > 0) {
    found.report = await ctx.artifact({
      name: 'unusual.csv',
      type: 'csv',
      contentType: 'text/csv',
      description: `Rows whose ${chosen} is more than ${UNUSUAL} standard deviations from the mean`,
      data: formatTable(table.columns, unusual, delimiter),
    });
  }
  ctx.progress(100, 'done');
  return found;
});

function read(csv, delimiter) {
  try {
    return parseTable(csv, delimiter);
  } catch (error) {
    throw new ToolError(error.message);
  }
}

async function chooseColumn(table, column, ctx) {
  if (column !== undefined) {
    if (table.columns.includes(column)) return column;
    throw new ToolError(`There is no column "${column}". The columns are: ${table.columns.join(', ')}.`);
  }
  const numeric = table.columns.filter((_name, index) => table.rows.some((row) => numberIn(row[index]) !== undefined));
  if (numeric.length === 0) throw new ToolError('No column of the table holds numbers.');
  if (numeric.length === 1) return numeric[0];
  return ask(numeric, ctx);
}

async function ask(numeric, ctx) {
  const choices = numeric.join(', ');
  const { action, fields } = await ctx
    .elicit('which_column', {
      message: `Which column shall be summarised? The numeric ones are: ${choices}.`,
      schema: { type: 'object', required: ['column'], properties: { column: { type: 'string', title: 'Column', enum: numeric } } },
    })
    .catch((error) => {
      if (error.code !== 'INPUT_UNSUPPORTED') throw error;
      throw new ToolError(`Say which column with the argument "column": ${choices}.`);
    });
  if (action !== 'accept') throw new ToolError(`Nothing was summarised: no column was chosen of ${choices}.`);
  if (!numeric.includes(fields.column)) throw new ToolError(`"${fields.column}" is none of ${choices}.`);
  return fields.column;
}

function summarise(values) {
  const numbers = values.filter((value) => value !== undefined);
  if (numbers.length === 0) throw new ToolError('The column holds no numbers.');
  let sum = 0;
  let min = Infinity;
  let max = -Infinity;
  for (const value of numbers) {
    sum += value;
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  const mean = sum / numbers.length;
  const variance = numbers.reduce((total, value) => total + (value - mean) ** 2, 0) / numbers.length;
  return { deviation: Math.sqrt(variance), output: { count: numbers.length, sum, mean, min, max } };
}

function isUnusual(value, { deviation, output }) {
  return value !== undefined && deviation > 0 && Math.abs(value - output.mean) > UNUSUAL * deviation;
}
