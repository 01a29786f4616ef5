//! Conversion of documents without files and network, for their fuzz target.

use serde_json::Value;

use super::document::OpenApiDocument;
use super::operation::{self, Tool};

/// Address that relative servers of a document are relative to.
const READ_AT: &str = "https://api.example.com/openapi.json";
/// Maximum number of operations that are converted.
const MAX_OPERATIONS: usize = 64;

/// A tool, and the parts of its request that name arguments.
pub struct ConvertedOperation {
    pub name: String,
    pub summary: String,
    pub input: Value,
    /// Values of the query and of headers.
    pub templates: Vec<String>,
    /// Pointer to the argument that is the body.
    pub body: Option<String>,
}

/// Converts the first operations of a document; none if it cannot be read.
pub fn convert(text: &[u8]) -> Vec<ConvertedOperation> {
    let Ok(document) = OpenApiDocument::parse(text) else { return Vec::new() };
    let document = document.at(READ_AT);
    let _ = document.server();
    let found = document.operations().unwrap_or_default();
    let tools = found.iter().take(MAX_OPERATIONS).filter_map(|found| operation::tool(&document, found).ok());
    let converted = |Tool { name, summary, input, query, headers, body, .. }: Tool| {
        let values = query.values().chain(headers.values());
        let templates = values.filter_map(Value::as_str).map(str::to_owned).collect();
        let body = body.as_ref().and_then(Value::as_str).map(str::to_owned);
        ConvertedOperation { name, summary, input, templates, body }
    };
    tools.map(converted).collect()
}
