//! YAML and JSON files as trees that know the line of every key and value.
//!
//! Owns the subset of YAML the platform reads: one document, text keys, no anchors, aliases, tags, merge keys or
//! directives. JSON goes through the same parser after a strict syntax check, so both have lines. Refuses, while
//! parsing, too deep, too many or too large values. Aliases are never expanded, so alias bombs do not work.

mod build;
mod scalar;

use crate::source::MAX_BYTES;
use serde_json::{Map, Number, Value};

use crate::fault::{Fault, FaultCode};
use crate::source::Source;

/// Maximum nesting. A schema may be 64 deep and starts three levels down.
pub(crate) const MAX_DEPTH: usize = 80;
/// Maximum number of keys and values in one file. A schema has at most 5 000 subschemas, so real specs stay far
/// below; reading this many takes some 20 ms.
pub(crate) const MAX_NODES: usize = 50_000;

/// A parsed file.
#[derive(Debug)]
pub(crate) struct Document {
    root: Node,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// One-based line on which the value starts.
    pub(crate) line: u32,
    pub(crate) content: NodeContent,
}

#[derive(Debug)]
pub(crate) enum NodeContent {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<MapEntry>),
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: String,
    /// One-based line of the key.
    pub(crate) line: u32,
    pub(crate) node: Node,
}

impl Document {
    /// Parses a file. Returns syntax faults, and a document if the rest of the file can still be checked.
    pub(crate) fn parse(source: &Source) -> (Option<Document>, Vec<Fault>) {
        if source.text.len() > MAX_BYTES {
            let fault = Fault {
                code: FaultCode::DocumentBudget,
                file: source.path.clone(),
                line: 1,
                path: String::new(),
                message: format!("the file has {} bytes, the limit is {MAX_BYTES}", source.text.len()),
                hint: "split the file or shorten its texts".into(),
            };
            return (None, vec![fault]);
        }
        let (root, faults) = build::build(source);
        (root.map(|root| Document { root }), faults)
    }

    /// Returns the values without their lines; key order is kept.
    pub(crate) fn to_json(&self) -> Value {
        self.root.to_json()
    }

    /// Returns the line of the key or value at a JSON pointer. If there is none, returns that of the deepest value on
    /// the way.
    pub(crate) fn line_at(&self, pointer: &str) -> u32 {
        let mut node = &self.root;
        let mut line = node.line;
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            let next = match &node.content {
                NodeContent::Map(entries) => {
                    entries.iter().find(|entry| entry.key == token).map(|entry| (entry.line, &entry.node))
                }
                NodeContent::List(items) => token
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index))
                    .map(|item| (item.line, item)),
                _ => None,
            };
            let Some((next_line, next_node)) = next else { break };
            line = next_line;
            node = next_node;
        }
        line
    }

    /// Calls `visit` with the pointer and text of every key and text value.
    pub(crate) fn visit_texts(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit_texts(&self.root, &mut String::new(), visit);
    }
}

impl Node {
    fn to_json(&self) -> Value {
        match &self.content {
            NodeContent::Null => Value::Null,
            NodeContent::Bool(value) => Value::Bool(*value),
            NodeContent::Number(value) => Value::Number(value.clone()),
            NodeContent::Text(value) => Value::String(value.clone()),
            NodeContent::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            NodeContent::Map(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    map.insert(entry.key.clone(), entry.node.to_json());
                }
                Value::Object(map)
            }
        }
    }
}

/// Escapes one token of a JSON pointer (RFC 6901 section 3).
pub(crate) fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

// Recursion is bounded by MAX_DEPTH.
fn visit_texts(node: &Node, path: &mut String, visit: &mut dyn FnMut(&str, &str)) {
    let length = path.len();
    match &node.content {
        NodeContent::Text(text) => visit(path, text),
        NodeContent::List(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("/{index}"));
                visit_texts(item, path, visit);
                path.truncate(length);
            }
        }
        NodeContent::Map(entries) => {
            for entry in entries {
                path.push('/');
                path.push_str(&escape(&entry.key));
                visit(path, &entry.key);
                visit_texts(&entry.node, path, visit);
                path.truncate(length);
            }
        }
        NodeContent::Null | NodeContent::Bool(_) | NodeContent::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;
