//! The published JSON Schemas of the two file formats are the ones that are checked in.

use std::fs;
use std::path::{Path, PathBuf};

use asp_registry::{server_schema, spec_schema};
use serde_json::Value;

/// Set to write the files instead of comparing them.
const UPDATE: &str = "ASP_UPDATE_GOLDEN";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives/schema").join(name)
}

#[test]
fn the_checked_in_schemas_are_the_generated_ones() {
    for (name, schema) in [("primitive.json", spec_schema()), ("server.json", server_schema())] {
        let generated = format!("{}\n", serde_json::to_string_pretty(&schema).expect("a schema is JSON"));
        if std::env::var_os(UPDATE).is_some() {
            fs::create_dir_all(file("")).expect("the folder can be made");
            fs::write(file(name), &generated).expect("the schema can be written");
        }
        let checked_in = fs::read_to_string(file(name)).unwrap_or_default();
        assert!(
            checked_in == generated,
            "primitives/schema/{name} has drifted from the Rust types; regenerate it with\n\
             {UPDATE}=1 cargo test -p asp-registry --test it the_checked_in_schemas_are_the_generated_ones"
        );
    }
}

#[test]
fn the_published_schemas_are_valid_and_closed() {
    for schema in [spec_schema(), server_schema()] {
        assert!(jsonschema::draft202012::meta::is_valid(&schema));
        assert_closed(&schema, "");
    }
}

/// Every object of the format rejects unknown keys, except the free-form ones (schemas, string maps).
fn assert_closed(value: &Value, path: &str) {
    let Some(object) = value.as_object() else { return };
    if object.get("type").is_some_and(|name| name == "object") && object.contains_key("properties") {
        assert_eq!(object.get("additionalProperties"), Some(&Value::Bool(false)), "{path}");
    }
    for (key, inner) in object {
        assert_closed(inner, &format!("{path}/{key}"));
    }
}
