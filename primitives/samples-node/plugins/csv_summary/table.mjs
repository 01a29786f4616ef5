//! A CSV text as rows (RFC 4180): quoted fields may hold the delimiter, doubled quotes and line breaks. Refuses a
//! text without a header line or with more columns than anybody reads.

const MAX_COLUMNS = 200;

/** Returns {columns, rows}: the header's names and each row as an array of texts. */
export function parseTable(text, delimiter) {
  const [columns, ...rows] = records(text.replace(/^\uFEFF/, ''), delimiter);
  if (!columns) throw new RangeError('the table is empty');
  if (columns.length > MAX_COLUMNS) throw new RangeError(`the table has more than ${MAX_COLUMNS} columns`);
  return { columns: columns.map((name) => name.trim()), rows };
}

/** Returns the number a field holds, `undefined` for anything else. */
export function numberIn(field) {
  const text = (field ?? '').trim();
  if (text === '') return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

/** Returns rows as a CSV text with a header. */
export function formatTable(columns, rows, delimiter) {
  const field = (value) => (/["\r\n]/.test(value) || value.includes(delimiter) ? `"${value.replaceAll('"', '""')}"` : value);
  return [columns, ...rows].map((row) => `${row.map(field).join(delimiter)}\r\n`).join('');
}

function* records(text, delimiter) {
  let row = [];
  let field = '';
  let quoted = false;
  for (let i = 0; i < text.length; i += 1) {
    const char = text[i];
    if (quoted) {
      if (char !== '"') field += char;
      else if (text[i + 1] === '"') field += text[(i += 1)];
      else quoted = false;
    } else if (char === '"' && field === '') {
      quoted = true;
    } else if (char === delimiter) {
      row.push(field);
      field = '';
    } else if (char === '\n') {
      row.push(field.replace(/\r$/, ''));
      if (row.length > 1 || row[0] !== '') yield row;
      row = [];
      field = '';
    } else {
      field += char;
    }
  }
  if (field !== '' || row.length > 0) yield [...row, field];
}
