//! Primitives in a request's body or a single file: one spec, or a set of files.

use asp_registry::{CheckReport, Source};
use asp_store::control::SourceFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::admin::problem::{Problem, Result};
use crate::admin::request::{Syntax, Text};
use crate::catalog;

/// Folder in which a single spec is checked.
const FOLDER: &str = "inline";

#[derive(Deserialize)]
struct OnlyId {
    id: String,
}

/// Checks the body of `validate` and `compile`: `{"files": [...]}`, or the text of one primitive spec, which is then
/// checked in a generated server.
pub fn check(text: &Text) -> Result<CheckReport> {
    let sources = match files(text)? {
        Some(files) => catalog::sources(&files.files),
        None => lone_spec(text),
    };
    Ok(asp_registry::check(&sources))
}

fn files(text: &Text) -> Result<Option<Files>> {
    // The registry describes a spec with a syntax error.
    let Ok(value) = text.decode::<Value>() else {
        return Ok(None);
    };
    if value.get("files").is_none() {
        return Ok(None);
    }
    serde_json::from_value(value)
        .map(Some)
        .map_err(|error| Problem::new(crate::admin::problem::Code::InvalidBody, error.to_string()))
}

fn lone_spec(text: &Text) -> Vec<Source> {
    let extension = match text.syntax {
        Syntax::Json => "json",
        Syntax::Yaml => "yaml",
    };
    let spec = Source { path: format!("{FOLDER}/primitive.{extension}"), text: text.text.clone() };
    let Ok(OnlyId { id }) = text.decode() else {
        return vec![spec];
    };
    let server = serde_json::json!({
        "apiVersion": "asp/v1",
        "name": FOLDER,
        "title": FOLDER,
        "description": "One primitive, compiled by itself.",
        "version": "1.0.0",
        "protocols": ["mcp", "a2a"],
        "auth": {"schemes": ["jwt"], "issuers": ["dev"]},
        "card": {"provider": {"organization": FOLDER, "url": "https://example.com"}},
        "primitives": [{"ref": format!("{FOLDER}/{id}")}],
    });
    vec![Source { path: format!("{FOLDER}/server.json"), text: server.to_string() }, spec]
}

/// Files of a server, including listed files of other folders.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    #[schema(value_type = Vec<Object>)]
    pub files: Vec<SourceFile>,
}
