//! Resources and resource templates of an upstream as specs.
//!
//! Keeps true: lists show the upstream's own name and title; whatever a spec cannot express is reported.

use asp_registry::is_resource_name;
use asp_registry::uri_template::UriTemplate;
use serde_json::{Map, Value, json};

use super::{Import, text};

impl Import<'_> {
    pub(super) fn resource(&mut self, resource: &Value, kind: &str, member: &str) {
        let Some(uri) = text(resource, member) else { return };
        let name = text(resource, "name").unwrap_or(uri);
        let mut schema = Map::new();
        schema.insert(member.into(), uri.into());
        if let Some(mime) = text(resource, "mimeType") {
            schema.insert("mimeType".into(), mime.into());
        }
        let template = UriTemplate::parse_matching(uri).ok().filter(|_| kind == "resource_template");
        let names = template.iter().flat_map(UriTemplate::variables).collect();
        self.complete(&mut schema, names);
        let mut spec = self.common(resource, name, kind);
        let hints = self.hints(resource, uri);
        if !hints.is_empty() {
            spec.insert("annotations".into(), Value::Object(hints));
        }
        spec.insert("primitiveSchema".into(), Value::Object(schema));
        self.show_name(resource, (kind, uri), &mut spec);
        self.add(spec, uri, resource);
    }

    /// Makes lists show the upstream's own name. A resource whose name a spec cannot hold is listed under its id, which is
    /// reported.
    fn show_name(&mut self, resource: &Value, (kind, uri): (&str, &str), spec: &mut Map<String, Value>) {
        match text(resource, "name") {
            Some(name) if is_resource_name(name) => {
                let exposure = json!({"mcp": {"resource": {"enabled": true, "name": name}}});
                spec.insert("exposure".into(), exposure);
            }
            _ => {
                let id = spec.get("id").and_then(Value::as_str).unwrap_or_default();
                let why = "its own name is not visible text of at most 256 characters";
                self.renamed.push(format!("renamed: {kind} {uri:?} is listed as {id}: {why}"));
            }
        }
    }

    /// Returns the audience and priority of a resource; other annotations are reported as dropped.
    fn hints(&mut self, resource: &Value, uri: &str) -> Map<String, Value> {
        let mut hints = Map::new();
        let said = resource.get("annotations").and_then(Value::as_object);
        for (name, value) in said.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let fits = match name.as_str() {
                "audience" => value.as_array().is_some_and(|roles| {
                    roles.iter().all(|role| matches!(role.as_str(), Some("user" | "assistant")))
                }),
                "priority" => value.as_f64().is_some_and(|weight| (0.0..=1.0).contains(&weight)),
                _ => false,
            };
            match fits {
                true => drop(hints.insert(name.clone(), value.clone())),
                false => {
                    self.dropped.push(format!("annotations.{name} of {uri:?}: a spec has no place for it"))
                }
            }
        }
        if resource.get("size").is_some_and(|size| !size.is_null()) {
            self.dropped.push(format!("size of {uri:?}: a spec has no place for it"));
        }
        hints
    }
}
