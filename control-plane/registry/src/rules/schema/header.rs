//! `x-mcp-header`: arguments that a client repeats as `Mcp-Param-*` headers (MCP 2026-07-28, SEP-2243).

use std::collections::HashSet;

use serde_json::Value;

use super::walk::Sub;
use super::{Faults, fault};
use crate::document::escape;
use crate::fault::FaultCode;
use crate::rules::proxy::is_token_byte;

const KEYWORD: &str = "x-mcp-header";
/// Maximum length of a name; `Mcp-Param-` and the name must form a header name that every server accepts.
const MAX_NAME: usize = 64;
const HINT: &str =
    "annotate string, integer or boolean properties reached by `properties` alone, with unique header tokens";

pub(super) fn check(root: &Value, subschemas: &[Sub<'_>], allowed: bool, faults: &mut Faults) {
    let mut reachable = HashSet::new();
    if allowed {
        collect(root, String::new(), &mut reachable);
    }
    let mut names = HashSet::new();
    for sub in subschemas {
        let Some(annotation) = sub.schema.get(KEYWORD) else { continue };
        let mut add = |message: String| {
            let path = format!("{}/{KEYWORD}", sub.pointer);
            faults.push(fault(FaultCode::BadHeaderAnnotation, &path, message, HINT));
        };
        if !reachable.contains(&sub.pointer) {
            add("no header can carry the value of the annotated schema".into());
            continue;
        }
        let kind = sub.schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if !matches!(kind, "string" | "integer" | "boolean") {
            add(format!("a value of type `{kind}` has no header form"));
        }
        match annotation.as_str() {
            Some(name) if is_header_name(name) => {
                if !names.insert(name.to_ascii_lowercase()) {
                    add(format!("the header `{name}` is used twice"));
                }
            }
            Some(name) => add(format!("`{}` is not a header token", name.escape_debug())),
            None => add("the annotation is not a text".into()),
        }
    }
}

fn is_header_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_token_byte)
}

/// Collects the pointers of all properties that `properties` alone lead to; recursion is bounded by the schema's
/// depth.
fn collect(schema: &Value, pointer: String, reachable: &mut HashSet<String>) {
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let pointer = format!("{pointer}/properties/{}", escape(name));
        collect(property, pointer.clone(), reachable);
        reachable.insert(pointer);
    }
}
