//! Interpretation of plain YAML scalars.
//!
//! Owns the YAML 1.2 core schema, reduced to what every YAML version and JSON agree on. Refuses texts that they read
//! differently (`no`, `017`, `0x1F`, `1_000`, `.inf`, `12:30:45`): the author must quote them. Numbers that JSON
//! programs would round are rejected too.

use serde_json::Number;

use super::NodeContent;

/// The error for a plain scalar that YAML versions read differently.
pub(super) struct AmbiguousScalar;

/// Reads a plain (unquoted) scalar.
pub(super) fn plain(text: &str) -> Result<NodeContent, AmbiguousScalar> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(NodeContent::Null),
        "true" | "True" | "TRUE" => return Ok(NodeContent::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(NodeContent::Bool(false)),
        _ => {}
    }
    if is_old_boolean(text) || is_special_float(text) {
        return Err(AmbiguousScalar);
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !looks_numeric(digits) {
        return Ok(NodeContent::Text(text.to_string()));
    }
    number(text).map(NodeContent::Number).ok_or(AmbiguousScalar)
}

/// Reads a JSON number that keeps its value: a 64-bit integer, or a finite float.
pub(super) fn number(text: &str) -> Option<Number> {
    // serde_json has exactly JSON's grammar: no leading zero, no plus sign, no bare point.
    let number = serde_json::from_str::<Number>(text).ok()?;
    let is_integer = !text.contains(['.', 'e', 'E']);
    (!is_integer || number.is_i64() || number.is_u64()).then_some(number)
}

/// Whether the text is a boolean of YAML 1.1, except `y` and `n`: its parsers did not read those as booleans either
/// (they name coordinates and counts).
fn is_old_boolean(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off")
}

fn is_special_float(text: &str) -> bool {
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text).to_ascii_lowercase();
    matches!(bare.as_str(), ".inf" | ".nan")
}

/// Whether some YAML version reads the text as a number: decimal, octal, hexadecimal, binary, grouped by underscores
/// or sexagesimal. `1.2.3` and `2025-01-01` are texts in all of them (a YAML 1.1 timestamp has no JSON form, so it
/// remains text).
fn looks_numeric(digits: &str) -> bool {
    let lower = digits.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(rest) = lower.strip_prefix(prefix) {
            return !rest.is_empty() && rest.chars().all(|c| c.is_digit(radix) || c == '_');
        }
    }
    if lower.contains(':') {
        return lower.chars().all(|c| c.is_ascii_digit() || c == ':' || c == '.' || c == '_')
            && lower.split(':').all(|part| !part.is_empty());
    }
    let (mantissa, exponent) = match lower.split_once('e') {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (lower.as_str(), None),
    };
    let mantissa_fits = mantissa.chars().any(|c| c.is_ascii_digit())
        && mantissa.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '_')
        && mantissa.matches('.').count() <= 1;
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    });
    mantissa_fits && exponent_fits
}
