//! Definitions of one JSON Schema document, each as a validator of its own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::tool;

/// Errors shown of one message.
pub(super) const SHOWN: usize = 3;

/// A fault, and its place in the message.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) pointer: String,
    pub(super) error: String,
}

impl Problem {
    pub(super) fn new(error: String) -> Problem {
        Problem { pointer: String::new(), error }
    }

    /// Moves the problem of a part to the place of that part.
    pub(super) fn below(self, pointer: &str) -> Problem {
        Problem { pointer: format!("{pointer}{}", self.pointer), ..self }
    }
}

/// A document with its definitions.
pub(super) struct Definitions {
    document: Value,
    place: &'static str,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Definitions {
    pub(super) fn new(document: Value) -> Definitions {
        let place = if document.get("$defs").is_some() { "$defs" } else { "definitions" };
        Definitions { document, place, validators: Mutex::default() }
    }

    /// Adds the definitions of another document.
    pub(super) fn extend(&mut self, other: &Value) -> Result<()> {
        let more = other.get(self.place).and_then(Value::as_object).context("more definitions")?;
        let own = self.document.get_mut(self.place).and_then(Value::as_object_mut).context("definitions")?;
        own.extend(more.clone());
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.document.get(self.place)?.get(name)
    }

    /// All definitions with their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.document.get(self.place).and_then(Value::as_object).into_iter().flatten()
    }

    /// The methods of a union, each with the name of its definition.
    pub(super) fn methods(&self, union: &str) -> Vec<(String, String)> {
        let Some(definition) = self.get(union) else { return Vec::new() };
        let method =
            |definition: &Value| definition.pointer("/properties/method/const")?.as_str().map(String::from);
        let members = definition.get("anyOf").and_then(Value::as_array);
        let Some(members) = members else {
            // The union of one.
            return method(definition).into_iter().map(|name| (name, union.to_owned())).collect();
        };
        let names = members.iter().filter_map(|member| member.get("$ref")?.as_str()?.rsplit('/').next());
        names.filter_map(|name| Some((method(self.get(name)?)?, name.to_owned()))).collect()
    }

    /// Faults of a part of a message.
    pub(super) fn problems_at(&self, pointer: &str, definition: &str, message: &Value) -> Vec<Problem> {
        let part = message.pointer(pointer).unwrap_or(&Value::Null);
        self.problems(definition, part).into_iter().map(|problem| problem.below(pointer)).collect()
    }

    pub(super) fn problems(&self, definition: &str, instance: &Value) -> Vec<Problem> {
        let validator = match self.validator(definition) {
            Ok(validator) => validator,
            Err(error) => return vec![Problem::new(format!("{definition}: {error:#}"))],
        };
        let problem = |error: jsonschema::ValidationError<'_>| Problem {
            pointer: error.instance_path().to_string(),
            error: format!("{definition}: {}", error.masked()),
        };
        validator.iter_errors(instance).take(SHOWN).map(problem).collect()
    }

    fn validator(&self, definition: &str) -> Result<Arc<Validator>> {
        let mut validators = self.validators.lock();
        if let Some(validator) = validators.get(definition) {
            return Ok(validator.clone());
        }
        let place = self.place;
        let schema = json!({
            "$schema": self.document.get("$schema"),
            "$ref": format!("#/{place}/{definition}"),
            place: self.document.get(place),
        });
        let built = jsonschema::options().offline().build(&schema);
        let validator = Arc::new(built.map_err(|error| anyhow::anyhow!("{error}"))?);
        validators.insert(definition.to_owned(), validator.clone());
        Ok(validator)
    }
}

/// A JSON file of `tests/vectors`.
pub(super) fn vector(path: &str) -> Result<Value> {
    let path = tool::root()?.join("tests/vectors").join(path);
    read(&path).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}
