//! The description of the API (Info Object of OpenAPI 3.1) for a new `server.yaml`.
//!
//! Keeps true: each text is one line of visible characters, quoted, so that a document cannot add a key.

use serde_json::{Map, Value};

use super::super::values::one_line;
use super::OpenApiDocument;

/// Members that become part of the server.
const USED: [&str; 4] = ["description", "summary", "title", "version"];

/// The document's `info`.
pub(in super::super) struct Info<'a>(Option<&'a Map<String, Value>>);

impl OpenApiDocument {
    pub(in super::super) fn info(&self) -> Info<'_> {
        Info(self.root.get("info").and_then(Value::as_object))
    }
}

impl<'a> Info<'a> {
    /// Returns `server.yaml` with the document's title, summary (else the first paragraph of the description) and version, as
    /// far as the document has them.
    pub(in super::super) fn describe(&self, file: &str) -> String {
        let description = self.text("summary").or_else(|| self.text("description"));
        let first = description.and_then(|text| text.split("\n\n").find(|part| !part.trim().is_empty()));
        let version = self.text("version").filter(|version| asp_registry::version::is_valid(version));
        let values = [("title: ", self.text("title")), ("description: ", first), ("version: ", version)];
        let mut lines: Vec<String> = file.lines().map(str::to_owned).collect();
        for (key, text) in values {
            let text = text.map(one_line).filter(|text| !text.is_empty());
            let line = lines.iter_mut().find(|line| line.starts_with(key));
            if let (Some(text), Some(line)) = (text, line) {
                // JSON text is valid YAML in double quotes.
                *line = format!("{key}{}", Value::from(text));
            }
        }
        lines.join("\n") + "\n"
    }

    /// Returns the members that no server has. Extensions (`x-`) do not count.
    pub(super) fn other_members(&self) -> impl Iterator<Item = &'a String> {
        let names = self.0.into_iter().flat_map(Map::keys);
        names.filter(|name| !USED.contains(&name.as_str()) && !name.starts_with("x-"))
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.0?.get(name)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::OpenApiDocument;

    const FILE: &str = "name: shop\ntitle: shop\ndescription: None\nversion: 1.0.0\nprimitives:\n";

    fn described(info: Value) -> String {
        let text = json!({"openapi": "3.1.0", "info": info}).to_string();
        OpenApiDocument::parse(text.as_bytes()).unwrap().info().describe(FILE)
    }

    #[test]
    fn a_new_server_has_the_title_description_and_version_of_the_document() {
        let info = json!({"title": "Shop: \"API\"\nname: x", "version": "2.3.0",
            "description": "\n\nOrders and\ncustomers.\n\n# Errors\nMany."});
        let file = described(info);
        assert!(file.contains("\ntitle: \"Shop: \\\"API\\\" name: x\"\n"), "{file}");
        assert!(file.contains("\ndescription: \"Orders and customers.\"\n"), "{file}");
        assert!(file.ends_with("\nversion: \"2.3.0\"\nprimitives:\n"), "{file}");
        let short = described(json!({"summary": "Orders", "description": "All of it"}));
        assert!(short.contains("\ndescription: \"Orders\"\n"), "{short}");
    }

    #[test]
    fn a_version_that_is_no_semantic_version_stays_out() {
        for info in
            [json!({"version": "2024-01"}), json!({"version": 2}), json!({"title": "\u{200b}"}), json!(7)]
        {
            assert_eq!(described(info.clone()), FILE, "{info}");
        }
    }
}
