//! The parts of a document that belong to no tool, for the report.
//!
//! Keeps true: each part is reported with its place; extensions (`x-`) do not count.

use serde_json::{Map, Value};

use super::super::values::one_line;
use super::{METHODS, OpenApiDocument, is_unserved};

/// Members of a document that become part of tools, or have a note of their own.
const USED: [&str; 7] = ["components", "info", "openapi", "paths", "security", "servers", "webhooks"];
/// Place of parts that concern the whole document.
const WHOLE: &str = "the document";

impl OpenApiDocument {
    /// Returns the parts that belong to no tool: the place of each, and a note on it.
    pub(in super::super) fn parts(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (path, item) in self.paths() {
            let Ok(item) = item else { continue };
            self.add_path(path, item, &mut found);
        }
        let webhooks = self.root.get("webhooks").and_then(Value::as_object).into_iter().flatten();
        for (name, _) in webhooks {
            let note = "it is left out: the service sends it, and no tool receives it";
            found.push((one_line(&format!("webhook {name}")), note.into()));
        }
        for name in self.root.keys().filter(|name| !USED.contains(&name.as_str()) && !name.starts_with("x-"))
        {
            found.push((WHOLE.into(), format!("its member `{}` is left out", one_line(name))));
        }
        for name in self.info().other_members() {
            found.push((WHOLE.into(), format!("`{}` of its info is left out", one_line(name))));
        }
        if self.cleaned > 0 {
            let texts = self.cleaned;
            found.push((
                WHOLE.into(),
                format!("the invisible characters of {texts} of its texts are left out"),
            ));
        }
        found
    }

    /// Returns the parts of the document's servers that are left out when tools use the first one.
    pub(in super::super) fn server_parts(&self) -> Vec<(String, String)> {
        let servers =
            self.root.get("servers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let variables = servers.first().and_then(|server| server.get("variables")?.as_object());
        let mut found = Vec::new();
        if servers.len() > 1 {
            let note = "its servers after the first one are left out (`--proxy-url` names another)";
            found.push((WHOLE.into(), note.into()));
        }
        if variables.is_some_and(|variables| !variables.is_empty()) {
            let note =
                "the variables of its server get their default values (`--proxy-url` overrides the server)";
            found.push((WHOLE.into(), note.into()));
        }
        found
    }

    /// Adds the parts of a path that are neither an operation nor part of one.
    fn add_path(&self, path: &str, item: &Value, found: &mut Vec<(String, String)>) {
        let place = one_line(path);
        let Value::Object(item) = item else {
            found.push((place, "it is left out: it holds no object".into()));
            return;
        };
        for (name, _) in item.iter().filter(|(name, value)| is_operation(name) && !value.is_object()) {
            let place = one_line(&format!("{name} {path}"));
            found.push((place, "it is left out: it holds no object".into()));
        }
        for name in ["summary", "description"].into_iter().filter(|name| item.contains_key(*name)) {
            found.push((place.clone(), format!("the {name} of the path is left out")));
        }
        let written = self.root.get("paths").and_then(|paths| paths.get(path)?.as_object());
        let has_siblings = |written: &Map<String, Value>| {
            written.contains_key("$ref")
                && written.keys().any(|name| name != "$ref" && !name.starts_with("x-"))
        };
        if written.is_some_and(has_siblings) {
            found.push((place, "members next to the `$ref` of the path are left out".into()));
        }
    }
}

/// Whether a member of a path should hold an operation.
fn is_operation(name: &str) -> bool {
    METHODS.contains(&name) || is_unserved(name)
}
