//! Primitives that come in a request's body or from a single file: one spec, or a set of files.

use asp_registry::{FaultCode, Report, Source};
use asp_store::control::SourceFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::admin::body::{Syntax, Text};
use crate::admin::problem::Problem;
use crate::catalog;

/// The folder a lone spec is checked in.
const FOLDER: &str = "inline";

/// What was checked.
pub struct Checked {
    pub report: Report,
}

#[derive(Deserialize)]
struct OnlyId {
    id: String,
}

/// Checks the body of `validate` and `compile`: `{"files": [...]}`, or the text of one primitive spec, which
/// then stands in a server of its own.
pub fn check(text: &Text) -> Result<Checked, Problem> {
    let (sources, is_lone) = match files(text)? {
        Some(files) => (catalog::sources(&files.files), false),
        None => (lone_spec(text), true),
    };
    let mut report = asp_registry::check(&sources);
    if is_lone {
        // The server around it is ours, and so is what a check says of its protocols.
        report.warnings.retain(|warning| warning.code != FaultCode::UnservedProtocol);
    }
    Ok(Checked { report })
}

fn files(text: &Text) -> Result<Option<Files>, Problem> {
    // A spec with a syntax fault is the registry's to describe.
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

/// A server's files; other folders' files that it lists come along.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    #[schema(value_type = Vec<Object>)]
    pub files: Vec<SourceFile>,
}
