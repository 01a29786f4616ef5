//! JSON Schemas of arguments and results.
//!
//! Owns which schemas are accepted: valid JSON Schema 2020-12, self-contained, cheap to store and to evaluate on any
//! input. Refuses others before they are compiled, because compiling a hostile schema is already expensive. Also owns
//! the only change the platform makes, `nullable`.

mod cost;
mod header;
mod nullable;
mod walk;

pub(crate) use nullable::without_nullable;

use jsonschema::{Draft, PatternOptions, Registry, Validator};
use serde_json::{Value, json};

use crate::fault::FaultCode;
use crate::findings::Findings;

const MAX_BYTES: usize = 256 * 1024;
const MAX_DEPTH: usize = 64;
pub(crate) const MAX_ENUM: usize = 1_000;
/// Maximum memory of one compiled pattern in bytes; `(a{1,1000}){1,1000}` would need ten thousand times that.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// Maximum number of patterns. Together with [`MAX_PATTERN_BYTES`] it bounds the time in which all patterns compile.
pub(crate) const MAX_PATTERNS: usize = 100;
/// Maximum size of a default in bytes: validating a large one against a large schema takes long.
const MAX_DEFAULT_BYTES: usize = 16 * 1024;
/// Minimum `multipleOf`; with smaller steps a double cannot tell multiples from their neighbours.
const MIN_MULTIPLE: f64 = 1e-9;
/// Maximum number of meta-schema errors, more than anybody repairs in one go.
const MAX_META_ERRORS: usize = 50;
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Dialect of SDKs that generate schemas (zod, pydantic v1). It is evaluated as 2020-12, so keywords whose meaning
/// changed are rejected.
const ELDER_DIALECT: &str = "http://json-schema.org/draft-07/schema";
const ELDER_KEYWORDS: [&str; 2] = ["dependencies", "additionalItems"];
/// Name under which a schema is registered while its defaults are checked.
const SELF: &str = "urn:asp:schema";

/// Requirements on a schema apart from validity.
#[derive(Clone, Copy)]
pub(crate) struct SchemaRules {
    /// Whether the root must be `type: object` (MCP up to 2025-11-25, tools).
    pub(crate) object_root: bool,
    /// Whether `x-mcp-header` is allowed.
    pub(crate) header_annotations: bool,
}

/// Returns the options with which the gateway evaluates schemas: 2020-12, `format` asserted, patterns in linear time,
/// no references out of the schema.
fn options<'a>() -> jsonschema::ValidationOptions<'a> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
}

/// Checks the schema at the path `at`. Returns its validator if there is no fault.
pub(super) fn check(
    schema: &Value,
    at: &str,
    rules: SchemaRules,
    findings: &mut Findings<'_>,
) -> Option<Validator> {
    let mut local = Vec::new();
    let validator = Checker { schema, patterns: 0, at, rules, faults: &mut local }.run();
    let sound = !local.iter().any(|fault: &SchemaFault| !fault.code.is_warning());
    for fault in local {
        findings.add(fault.code, &format!("{at}{}", fault.path), fault.message, fault.hint);
    }
    if sound { validator } else { None }
}

/// Returns the faults of a schema, each with its place in it; warnings do not count.
pub(crate) fn faults(schema: &Value, rules: SchemaRules) -> Vec<(FaultCode, String)> {
    let mut faults = Vec::new();
    Checker { schema, patterns: 0, at: "", rules, faults: &mut faults }.run();
    faults.retain(|fault| !fault.code.is_warning());
    faults.into_iter().map(|fault| (fault.code, fault.path)).collect()
}

/// A fault inside a schema; `path` is relative to its root.
struct SchemaFault {
    code: FaultCode,
    path: String,
    message: String,
    hint: String,
}

type Faults = Vec<SchemaFault>;

fn fault(code: FaultCode, path: &str, message: impl Into<String>, hint: impl Into<String>) -> SchemaFault {
    SchemaFault { code, path: path.to_string(), message: message.into(), hint: hint.into() }
}

struct Checker<'s> {
    schema: &'s Value,
    patterns: usize,
    at: &'s str,
    rules: SchemaRules,
    faults: &'s mut Faults,
}

impl Checker<'_> {
    /// Runs the cheap checks first, and expensive ones only on schemas that passed them.
    fn run(&mut self) -> Option<Validator> {
        if !self.check_size() {
            return None;
        }
        let subschemas = walk::subschemas(self.schema);
        for sub in &subschemas {
            self.check_keywords(sub);
        }
        self.check_root();
        header::check(self.schema, &subschemas, self.rules.header_annotations, self.faults);
        cost::check(&subschemas, self.faults);
        if self.is_refused() {
            return None;
        }
        self.check_meta();
        if self.is_refused() {
            return None;
        }
        let compiled = without_nullable(self.schema);
        match options().build(&compiled) {
            Err(error) => {
                let hint = "correct the schema; JSON Schema 2020-12 is the dialect";
                self.faults.push(fault(FaultCode::BadSchema, "", error.to_string(), hint));
                None
            }
            Ok(validator) => {
                self.check_defaults(&compiled, &subschemas);
                Some(validator)
            }
        }
    }

    fn is_refused(&self) -> bool {
        self.faults.iter().any(|fault| !fault.code.is_warning())
    }

    fn check_size(&mut self) -> bool {
        let bytes = self.schema.to_string().len();
        let depth = depth(self.schema);
        let message = if bytes > MAX_BYTES {
            format!("the schema has {bytes} bytes, the limit is {MAX_BYTES}")
        } else if depth > MAX_DEPTH {
            format!("the schema is {depth} levels deep, the limit is {MAX_DEPTH}")
        } else {
            return true;
        };
        self.faults.push(fault(FaultCode::SchemaBudget, "", message, "simplify the schema"));
        false
    }

    fn check_keywords(&mut self, sub: &walk::Sub<'_>) {
        let Some(object) = sub.schema.as_object() else { return };
        let path = sub.pointer.as_str();
        for keyword in ["$id", "$schema", "$vocabulary"] {
            let Some(value) = object.get(keyword) else { continue };
            let allowed = path.is_empty()
                && match keyword {
                    "$schema" => {
                        let dialect = value.as_str().map(|dialect| dialect.trim_end_matches('#'));
                        dialect == Some(DIALECT) || dialect == Some(ELDER_DIALECT)
                    }
                    "$id" => true,
                    _ => false,
                };
            if !allowed {
                let hint =
                    format!("`$schema` at the root may be {DIALECT}; `$id` is allowed only at the root");
                let message = format!("`{keyword}` with this value is not allowed here");
                self.faults.push(fault(FaultCode::BadSchema, &format!("{path}/{keyword}"), message, hint));
            }
        }
        self.check_draft_07(object, path);
        if object.get("enum").and_then(Value::as_array).is_some_and(|list| list.len() > MAX_ENUM) {
            let message = format!("more than {MAX_ENUM} values");
            let hint = "use a pattern, or check the value in the primitive";
            self.faults.push(fault(FaultCode::SchemaBudget, &format!("{path}/enum"), message, hint));
        }
        if object.get("multipleOf").and_then(Value::as_f64).is_some_and(|step| step < MIN_MULTIPLE) {
            let message = "a step this small cannot be checked exactly";
            let hint = "use a step of at least 1e-9";
            self.faults.push(fault(FaultCode::BadSchema, &format!("{path}/multipleOf"), message, hint));
        }
        if object.get("nullable") == Some(&Value::Bool(true)) {
            let hint = "write type: [<type>, \"null\"]; `nullable` is not JSON Schema";
            let message = "`nullable: true` is compiled to a union with null";
            self.faults.push(fault(FaultCode::NullableRewritten, &format!("{path}/nullable"), message, hint));
        }
        if let Some(format) = object.get("format").and_then(Value::as_str)
            && !options().is_known_format(Draft::Draft202012, format)
        {
            let message = format!("the format `{}` is not asserted", super::name::escape(format));
            let hint = "use a format of JSON Schema 2020-12, or a pattern";
            self.faults.push(fault(FaultCode::UnknownFormat, &format!("{path}/format"), message, hint));
        }
        self.check_patterns(object, path);
    }

    /// Rejects draft-07 keywords whose meaning changed until 2020-12.
    fn check_draft_07(&mut self, object: &serde_json::Map<String, Value>, path: &str) {
        let dialect = self.schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
        if dialect.trim_end_matches('#') != ELDER_DIALECT {
            return;
        }
        let changed = ELDER_KEYWORDS.into_iter().find(|keyword| object.contains_key(*keyword));
        let reference =
            (object.contains_key("$ref") && object.len() > 1 && !path.is_empty()).then_some("$ref");
        if let Some(keyword) = changed.or(reference) {
            let message = format!("`{keyword}` here means something else in JSON Schema 2020-12");
            let hint = "write the schema in 2020-12: dependentRequired, prefixItems, allOf around a $ref";
            self.faults.push(fault(FaultCode::BadSchema, &format!("{path}/{keyword}"), message, hint));
        }
    }

    fn check_patterns(&mut self, object: &serde_json::Map<String, Value>, path: &str) {
        let mut patterns = Vec::new();
        if let Some(pattern) = object.get("pattern").and_then(Value::as_str) {
            patterns.push((format!("{path}/pattern"), pattern));
        }
        for key in
            object.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(|map| map.keys())
        {
            patterns
                .push((format!("{path}/patternProperties/{}", crate::document::escape(key)), key.as_str()));
        }
        self.patterns += patterns.len();
        for (path, pattern) in patterns {
            if self.patterns > MAX_PATTERNS {
                let message = format!("more than {MAX_PATTERNS} patterns");
                self.faults.push(fault(FaultCode::SchemaBudget, &path, message, "use fewer patterns"));
                return;
            }
            if let Some((message, hint)) = pattern_fault(pattern) {
                self.faults.push(fault(FaultCode::SchemaPattern, &path, message, hint));
            }
        }
    }

    fn check_root(&mut self) {
        if !self.rules.object_root {
            return;
        }
        if self.schema.get("type").and_then(Value::as_str) != Some("object") {
            let hint = "write type: object; MCP up to 2025-11-25 knows no other tool schema";
            self.faults.push(fault(FaultCode::SchemaRoot, "/type", "the root is not `type: object`", hint));
        }
        let properties = self.schema.get("properties").and_then(Value::as_object);
        for (key, property) in properties.into_iter().flatten() {
            if property.is_boolean() {
                let path = format!("/properties/{}", crate::document::escape(key));
                let message = "a tool's property is an object, not true or false";
                self.faults.push(fault(FaultCode::SchemaRoot, &path, message, "write {} for any value"));
            }
        }
    }

    fn check_meta(&mut self) {
        let validator = jsonschema::draft202012::meta::validator();
        for error in validator.iter_errors(self.schema).take(MAX_META_ERRORS) {
            let path = error.instance_path().as_str().to_string();
            let hint = "correct the keyword; JSON Schema 2020-12 is the dialect";
            self.faults.push(fault(FaultCode::BadSchema, &path, error.to_string(), hint));
        }
    }

    /// Checks that every default satisfies its subschema; references are resolved against the whole schema.
    fn check_defaults(&mut self, compiled: &Value, subschemas: &[walk::Sub<'_>]) {
        let with_default: Vec<_> = subschemas
            .iter()
            .filter_map(|sub| Some((sub.pointer.as_str(), sub.schema.get("default")?)))
            .collect();
        if with_default.is_empty() {
            return;
        }
        let registry = Registry::new()
            .draft(Draft::Draft202012)
            .add(SELF, jsonschema::Resource::from_contents(without_id(compiled)))
            .and_then(|registry| registry.prepare());
        let Ok(registry) = registry else {
            let message = format!("the schema at {} cannot be registered", self.at);
            self.faults.push(fault(FaultCode::BadSchema, "", message, "remove `$id`"));
            return;
        };
        for (pointer, default) in with_default {
            let path = format!("{pointer}/default");
            if default.to_string().len() > MAX_DEFAULT_BYTES {
                let message = format!("the default is larger than {MAX_DEFAULT_BYTES} bytes");
                self.faults.push(fault(FaultCode::SchemaBudget, &path, message, "shorten the default"));
                continue;
            }
            let reference = json!({"$ref": format!("{SELF}#{}", fragment(pointer))});
            let problem = match options().with_registry(&registry).build(&reference) {
                Ok(validator) => validator.validate(default).err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                let hint = "correct the default or its schema";
                self.faults.push(fault(FaultCode::BadDefault, &path, problem, hint));
            }
        }
    }
}

/// Returns what is wrong with a pattern, and how to correct it.
fn pattern_fault(pattern: &str) -> Option<(String, &'static str)> {
    if let Err(error) = options().build(&json!({"pattern": pattern})) {
        let hint = "use a pattern without look-around and back-references, with small repeat counts";
        return Some((error.to_string(), hint));
    }
    let error = check_portable_pattern(pattern).err()?;
    let hint = "write it as in ECMA-262 with the flag u, e.g. [aA] for (?i)a, ^ for \\A";
    Some((format!("clients cannot read the pattern: {error}"), hint))
}

/// Checks that clients can read a pattern. Patterns are ECMA-262 (JSON Schema 2020-12 Core section 6.4), and clients
/// that validate compile them with the flag `u`: a pattern that only our own engine reads makes them reject the whole
/// tool.
fn check_portable_pattern(pattern: &str) -> Result<(), String> {
    let flags = regress::Flags { unicode: true, ..regress::Flags::default() };
    let parsed = regress::backends::try_parse(pattern.chars().map(u32::from), flags);
    parsed.map(|_| ()).map_err(|error| error.text)
}

/// Returns the schema without its own `$id`, so that [`SELF`] names it.
fn without_id(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut() {
        object.remove("$id");
    }
    schema
}

/// Returns a JSON pointer as a URI fragment (RFC 6901 section 6).
fn fragment(pointer: &str) -> String {
    let mut fragment = String::new();
    for byte in pointer.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/$".contains(&byte) {
            fragment.push(char::from(byte));
        } else {
            fragment.push_str(&format!("%{byte:02X}"));
        }
    }
    fragment
}

/// Returns the number of nested levels; recursion is bounded by the document's depth.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
