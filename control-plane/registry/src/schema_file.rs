//! `<id>.schema.json`: the schemas of a plugin's arguments and result, derived from its code.
//!
//! Owns the format of the file that `asp plugin build` writes next to a spec, and the merge of its schemas into the
//! spec. Refuses a file without a plugin, and a schema that differs from one in the spec. Keeps true: faults of such
//! a schema are reported at their place in that file.

use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::published::{FileFormat, generate};
use crate::rules;
use crate::source::Source;
use crate::spec::Spec;
use crate::structure;

/// Version of the file and of a worker's answer to `InvokeRequest.describe`.
const FORMAT: u32 = 1;
const COMMENT: &str = "Written by asp plugin build from the code. Do not edit.";
/// JSON pointers of the two schemas in a spec, and in the file.
const INPUT: [&str; 2] = ["/primitiveSchema/input_schema", "/inputSchema"];
const OUTPUT: [&str; 2] = ["/primitiveSchema/output_schema", "/outputSchema"];

/// Contents of the file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct SchemaFile {
    #[serde(default, rename = "$comment")]
    _comment: Option<String>,
    #[schemars(range(min = 1, max = 1))]
    #[serde(rename = "format")]
    _format: u32,
    id: String,
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    input_schema: Option<Value>,
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    output_schema: Option<Value>,
}

/// Returns the file's text for the plugin `id`; `described` is its worker's answer to `InvokeRequest.describe`.
/// Returns `None` if the code defines neither arguments nor result.
pub fn schema_file(id: &str, described: &Value) -> Option<String> {
    let mut file = json!({"$comment": COMMENT, "format": FORMAT, "id": id});
    let object = file.as_object_mut()?;
    for key in ["inputSchema", "outputSchema"] {
        if let Some(schema) = described.get(key).filter(|schema| !schema.is_null()) {
            object.insert(key.into(), schema.clone());
        }
    }
    let says_something = object.contains_key("inputSchema") || object.contains_key("outputSchema");
    let text = serde_json::to_string_pretty(&file).ok()?;
    says_something.then(|| text + "\n")
}

/// Returns the name of the file for the plugin `id`.
pub fn schema_file_name(id: &str) -> String {
    format!("{id}{}", Source::SCHEMA_FILE)
}

/// A file that was read, and whether a spec uses it.
pub(crate) struct LoadedSchemaFile<'a> {
    source: &'a Source,
    document: &'a Document,
    value: Option<SchemaFile>,
    findings: Findings<'a>,
    is_taken: bool,
}

impl<'a> LoadedSchemaFile<'a> {
    pub(crate) fn read(source: &'a Source, document: &'a Document, bound: usize) -> LoadedSchemaFile<'a> {
        let mut findings = Findings::new(&source.path, document, bound);
        rules::check_texts(document, &mut findings);
        let value: Option<SchemaFile> = structure::decode(&document.to_json(), format(), &mut findings);
        LoadedSchemaFile { source, document, value, findings, is_taken: false }
    }

    /// Returns its faults, with one more if no spec uses it.
    pub(crate) fn into_findings(mut self) -> Findings<'a> {
        if !self.is_taken {
            let message = "its folder has no spec of a plugin's tool or task with this id";
            let hint = "remove it, or name it after the spec's id; `asp plugin build` writes such files";
            self.findings.add(FaultCode::BadPath, "/id", message, hint);
        } else if let Some(value) = &self.value
            && schema_file_name(&value.id) != self.source.file_name()
        {
            let message = format!("the file is for `{}`", value.id);
            self.findings.add(FaultCode::BadValue, "/id", message, "run `asp plugin build`");
        }
        self.findings
    }
}

/// Merges the schemas of the code into the spec in `folder`. `is_built` is false before the first build, when schemas
/// may still be missing.
pub(crate) fn complete<'a>(
    spec: &mut Spec,
    folder: &str,
    written: &mut [LoadedSchemaFile<'a>],
    is_built: bool,
    findings: &mut Findings<'a>,
) {
    if !spec.has_code() {
        return;
    }
    let name = schema_file_name(&spec.id);
    let found =
        written.iter_mut().find(|file| file.source.folder() == folder && file.source.file_name() == name);
    if let Some(file) = found {
        file.is_taken = true;
        spec.schema_file = Some(file.source.path.clone());
        // An invalid file has faults of its own.
        let Some(said) = &file.value else { return };
        for ([here, there], own, said) in [
            (INPUT, &mut spec.schema.input_schema, &said.input_schema),
            (OUTPUT, &mut spec.schema.output_schema, &said.output_schema),
        ] {
            let place = format!("{}{there}", file.source.path);
            match (own.as_ref(), said) {
                (None, Some(said)) => {
                    *own = Some(said.clone());
                    findings.attribute_to(here, &file.source.path, file.document, there);
                }
                (Some(own), Some(said)) if own != said => differs(here, &place, findings),
                _ => {}
            }
        }
    }
    if is_built && spec.schema.input_schema.is_none() {
        let message = "neither the spec nor the code defines the arguments";
        let hint = "give the handler's arguments a type and run `asp plugin build`, or add `input_schema`";
        findings.add(FaultCode::MissingKey, INPUT[0], message, hint);
    }
}

/// Returns the format of the file, compiled once. Nobody edits the file, so its schema is not published.
fn format() -> Option<&'static FileFormat> {
    static FORMAT: OnceLock<Option<FileFormat>> = OnceLock::new();
    let schema = || generate::<SchemaFile>("Schemas of a plugin's code");
    FORMAT.get_or_init(|| FileFormat::of(schema())).as_ref()
}

fn differs(here: &str, place: &str, findings: &mut Findings<'_>) {
    let message = format!("the schema here and the one of the code, {place}, differ");
    let hint = "remove it here and declare it by the types of the code, then run `asp plugin build`";
    findings.add(FaultCode::SchemaConflict, here, message, hint);
}
