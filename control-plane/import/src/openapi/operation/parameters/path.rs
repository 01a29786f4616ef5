//! The path of an operation: the arguments of its placeholders, and the query that some documents write in it.
//!
//! Refuses: credentials. Keeps true: a parameter that is both described and written in the path is one argument.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};

use super::super::super::values::one_line;
use super::super::Building;
use super::{Shape, is_secret, query_name};

/// ASCII characters that a URI cannot contain (RFC 3986 section 2); the braces are those of arguments.
const UNSAFE: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'|');

impl Building<'_> {
    /// Adds what a path contains in addition to its described parameters, and inserts the arguments into it. `is_parameter`
    /// knows the names of the described query parameters.
    pub(super) fn path(&mut self, written: &str, is_parameter: impl Fn(&str) -> bool) {
        let path = match written.split_once('?') {
            None => written.to_owned(),
            Some((plain, query)) => {
                let own = query.split('&').filter(|pair| self.is_of_path(pair, &is_parameter));
                match own.collect::<Vec<_>>().join("&").as_str() {
                    "" => plain.to_owned(),
                    own => format!("{plain}?{own}"),
                }
            }
        };
        self.add_undescribed_arguments(&path);
        let path = insert_arguments(&path, &self.places);
        self.tool.path = utf8_percent_encode(&path, UNSAFE).to_string();
    }

    /// Whether a pair in the path's query stays in the path: it must not be a described query parameter, which would be
    /// written twice, nor hold a credential.
    fn is_of_path(&mut self, pair: &str, is_parameter: &impl Fn(&str) -> bool) -> bool {
        let Some((name, value)) = pair.split_once('=') else { return true };
        let name = percent_decode_str(name).decode_utf8_lossy();
        let undescribed: Vec<&str> =
            placeholders(value).filter(|place| !self.places.contains_key(*place)).collect();
        let whole = undescribed.first().copied().filter(|place| value == format!("{{{place}}}"));
        if let Some(place) = whole {
            if is_parameter(&name) || self.tool.query.contains_key(&*name) {
                return false;
            }
            // The document describes the placeholder by its own name: one argument is sent under both names.
            if let Some(template) = self.query_template(place) {
                self.tool.query.insert(name.into_owned(), template);
                return false;
            }
        }
        let is_key = undescribed.iter().any(|place| self.is_credential(place));
        if is_key || !undescribed.is_empty() && self.is_credential(&name) {
            self.leave_out_credential("query", &name, "looks like a credential");
            return false;
        }
        true
    }

    /// Returns the template of a described query parameter.
    fn query_template(&self, name: &str) -> Option<Value> {
        let names = [Shape::Plain, Shape::Bracketed].map(|shape| query_name(name, shape));
        names.iter().find_map(|name| self.tool.query.get(name)).cloned()
    }

    fn is_credential(&self, name: &str) -> bool {
        is_secret(&name.to_ascii_lowercase()) || self.document.is_key(name, "query")
    }

    /// Adds an argument for each placeholder that the document does not describe, which some frameworks omit.
    fn add_undescribed_arguments(&mut self, path: &str) {
        for place in placeholders(path) {
            if self.places.contains_key(place) {
                continue;
            }
            let argument = self.argument(place);
            self.places.insert(place.to_owned(), format!("{{{argument}}}"));
            self.properties.insert(argument.clone(), json!({"type": "string"}));
            self.required.push(argument.into());
            let note = format!("its path parameter {} is not described: it takes a text", one_line(place));
            self.tool.notes.push(note);
        }
    }
}

/// Returns the names of the placeholders in a text.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

/// Inserts arguments into the placeholders of a path: all at once, because an argument may be named like another placeholder.
fn insert_arguments(path: &str, places: &BTreeMap<String, String>) -> String {
    let mut parts = path.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let place = part.split_once('}').and_then(|(name, rest)| Some((places.get(name)?, rest)));
        filled += &place.map_or_else(|| format!("{{{part}"), |(template, rest)| format!("{template}{rest}"));
    }
    filled
}
