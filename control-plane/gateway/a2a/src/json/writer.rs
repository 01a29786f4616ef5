//! A writer of objects that leaves out what is absent.

use std::fmt::Display;

use asp_json::{Json, write_string};

/// Text of an object under construction.
pub(crate) struct Writer {
    text: Vec<u8>,
}

/// Capacity for a message of usual size, in bytes.
const USUAL: usize = 512;

impl Writer {
    /// Begins an object.
    pub(crate) fn new() -> Writer {
        let mut text = Vec::with_capacity(USUAL);
        text.push(b'{');
        Writer { text }
    }

    fn name(&mut self, name: &str) {
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
        write_string(&mut self.text, name);
        self.text.push(b':');
    }

    /// Writes a string.
    pub(crate) fn string(&mut self, name: &str, value: &str) {
        self.name(name);
        write_string(&mut self.text, value);
    }

    /// Writes a string unless it is empty.
    pub(crate) fn word(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.string(name, value);
        }
    }

    /// Writes a string if there is one.
    pub(crate) fn option(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.string(name, value);
        }
    }

    /// Writes a JSON text.
    pub(crate) fn raw(&mut self, name: &str, text: &str) {
        self.name(name);
        self.text.extend_from_slice(text.as_bytes());
    }

    /// Writes a JSON value if there is one.
    pub(crate) fn json(&mut self, name: &str, value: Option<&Json>) {
        if let Some(value) = value {
            self.raw(name, value.text());
        }
    }

    /// Writes a number or a boolean if there is one.
    pub(crate) fn scalar(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.raw(name, &value.to_string());
        }
    }

    /// Writes true, or nothing.
    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.raw(name, "true");
        }
    }

    /// Writes an object.
    pub(crate) fn object(&mut self, name: &str, write: impl FnOnce(&mut Writer)) {
        self.name(name);
        self.nested(write);
    }

    fn nested(&mut self, write: impl FnOnce(&mut Writer)) {
        self.text.push(b'{');
        write(self);
        self.text.push(b'}');
    }

    /// Writes a list of objects, an empty one too.
    pub(crate) fn all<T>(&mut self, name: &str, values: &[T], mut write: impl FnMut(&mut Writer, &T)) {
        self.name(name);
        self.text.push(b'[');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            self.nested(|writer| write(writer, value));
        }
        self.text.push(b']');
    }

    /// Writes a list of objects unless it is empty.
    pub(crate) fn objects<T>(&mut self, name: &str, values: &[T], write: impl FnMut(&mut Writer, &T)) {
        if !values.is_empty() {
            self.all(name, values, write);
        }
    }

    /// Writes a list of strings unless it is empty.
    pub(crate) fn strings(&mut self, name: &str, values: &[String]) {
        if !values.is_empty() {
            self.all_strings(name, values);
        }
    }

    /// Writes a list of strings, an empty one too.
    pub(crate) fn all_strings(&mut self, name: &str, values: &[String]) {
        self.name(name);
        self.text.push(b'[');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.text.push(b',');
            }
            write_string(&mut self.text, value);
        }
        self.text.push(b']');
    }

    /// Ends the object.
    pub(crate) fn finish(mut self) -> String {
        self.text.push(b'}');
        // Composed of texts.
        String::from_utf8(self.text).unwrap_or_else(|_| "{}".to_owned())
    }
}

/// Writes one object.
pub(crate) fn object(write: impl FnOnce(&mut Writer)) -> String {
    let mut writer = Writer::new();
    write(&mut writer);
    writer.finish()
}

/// Writes a list of objects.
pub(crate) fn list<T>(values: &[T], mut write: impl FnMut(&mut Writer, &T)) -> String {
    let texts: Vec<String> = values.iter().map(|value| object(|writer| write(writer, value))).collect();
    format!("[{}]", texts.join(","))
}
