//! A copy of the built filter whose VM a test can make crash, as a fault in it would.
//!
//! Its callback for response headers traps on headers that end the response (the answer to HEAD), and else calls the
//! filter's own.

use anyhow::{Context, Result, ensure};

/// WebAssembly core specification 5.5.2.
const TYPES: u8 = 1;
const IMPORTS: u8 = 2;
const FUNCTIONS: u8 = 3;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;

/// `(context, headers, end of stream) → action`, three numbers to one.
const TYPE: &[u8] = &[0x60, 3, 0x7f, 0x7f, 0x7f, 1, 0x7f];
const EXPORT: &[u8] = b"proxy_on_response_headers";

/// The module with the callback.
pub fn on_bodiless_responses(module: &[u8]) -> Result<Vec<u8>> {
    let mut sections = sections(module)?;
    let kind = append(section(&mut sections, TYPES)?, TYPE)?;
    let imported = imported(section(&mut sections, IMPORTS)?)?;
    let function = append(section(&mut sections, FUNCTIONS)?, &number(kind))? + imported;
    let replaced = replace_export(section(&mut sections, EXPORTS)?, function)?;
    let body = body(replaced);
    append(section(&mut sections, CODE)?, &[number(body.len()), body].concat())?;
    let mut result = module.get(..8).context("a header")?.to_vec();
    for (kind, content) in sections {
        result.push(kind);
        result.extend(number(content.len()));
        result.extend(content);
    }
    Ok(result)
}

/// No locals; `local.get 2 if unreachable end local.get 0 local.get 1 local.get 2 call callback end`.
fn body(callback: usize) -> Vec<u8> {
    let trap = [0, 0x20, 2, 0x04, 0x40, 0x00, 0x0b];
    let call = [0x20, 0, 0x20, 1, 0x20, 2, 0x10];
    [&trap, &call, number(callback).as_slice(), &[0x0b]].concat()
}

/// Exports another function as the callback; the index of the one before.
fn replace_export(section: &mut Vec<u8>, function: usize) -> Result<usize> {
    let mut rest = section.as_slice();
    let count = take_number(&mut rest)?;
    for _ in 0..count {
        let length = take_number(&mut rest)?;
        let name = take(&mut rest, length)?;
        let kind = take(&mut rest, 1)?;
        let begin = section.len() - rest.len();
        let index = take_number(&mut rest)?;
        if name == EXPORT {
            ensure!(kind == [0], "the callback is no function");
            let end = section.len() - rest.len();
            section.splice(begin..end, number(function));
            return Ok(index);
        }
    }
    anyhow::bail!("the filter exports no callback for response headers")
}

fn sections(module: &[u8]) -> Result<Vec<(u8, Vec<u8>)>> {
    let mut rest = module.strip_prefix(b"\0asm\x01\0\0\0").context("no WebAssembly module")?;
    let mut sections = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        let length = take_number(&mut rest)?;
        sections.push((*kind, take(&mut rest, length)?.to_vec()));
    }
    Ok(sections)
}

fn section(sections: &mut [(u8, Vec<u8>)], kind: u8) -> Result<&mut Vec<u8>> {
    let found = sections.iter_mut().find(|(of_kind, _)| *of_kind == kind);
    found.map(|(_, content)| content).with_context(|| format!("no section {kind}"))
}

/// Adds an entry to a section that is a list; its index.
fn append(section: &mut Vec<u8>, entry: &[u8]) -> Result<usize> {
    let mut entries = section.as_slice();
    let count = take_number(&mut entries)?;
    *section = [&number(count + 1), entries, entry].concat();
    Ok(count)
}

/// How many functions are imported: they are counted before the module's own.
fn imported(section: &[u8]) -> Result<usize> {
    let mut rest = section;
    let count = take_number(&mut rest)?;
    for _ in 0..count {
        for _ in ["module", "name"] {
            let length = take_number(&mut rest)?;
            take(&mut rest, length)?;
        }
        ensure!(take(&mut rest, 1)? == [0], "something is imported that is no function");
        take_number(&mut rest)?;
    }
    Ok(count)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length).context("the module ends early")?;
    *bytes = rest;
    Ok(taken)
}

/// LEB128 (5.2.2).
fn take_number(bytes: &mut &[u8]) -> Result<usize> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = *take(bytes, 1)?.first().context("a byte")?;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    anyhow::bail!("a number that does not end")
}

fn number(mut value: usize) -> Vec<u8> {
    let mut encoded = Vec::new();
    loop {
        let byte = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        match value {
            0 => {
                encoded.push(byte);
                return encoded;
            }
            _ => encoded.push(byte | 0x80),
        }
    }
}
