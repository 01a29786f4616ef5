//! A reader of objects that collects faults with their fields.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use asp_json::{Json, elements, members, string};

use crate::bounds::{MAX_ID, MAX_VIOLATIONS};
use crate::error::FieldViolation;

/// Faults of one message, bounded.
#[derive(Default)]
pub(crate) struct Faults(RefCell<Vec<FieldViolation>>);

impl Faults {
    fn add(&self, field: String, description: String) {
        let mut found = self.0.borrow_mut();
        if found.len() < MAX_VIOLATIONS {
            found.push(FieldViolation { field, description });
        }
    }

    /// Returns the faults, if there are any.
    pub(crate) fn finish(self) -> Result<(), Vec<FieldViolation>> {
        let found = self.0.into_inner();
        if found.is_empty() { Ok(()) } else { Err(found) }
    }
}

/// Position of an object in the message, written only when something is wrong.
#[derive(Clone, Copy, Default)]
struct FieldPath<'p> {
    parent: Option<&'p FieldPath<'p>>,
    name: &'static str,
    index: Option<usize>,
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent.filter(|parent| !parent.name.is_empty()) {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// An object with the texts of its members.
pub(crate) struct Object<'a, 'p> {
    members: Vec<(Cow<'a, str>, &'a str)>,
    path: FieldPath<'p>,
    faults: &'p Faults,
}

impl<'a, 'p> Object<'a, 'p> {
    /// Reads the outermost object.
    pub(crate) fn root(text: &'a str, faults: &'p Faults) -> Option<Object<'a, 'p>> {
        Object::at(text, FieldPath::default(), faults)
    }

    fn at(text: &'a str, path: FieldPath<'p>, faults: &'p Faults) -> Option<Object<'a, 'p>> {
        let Some(members) = members(text) else {
            faults.add(path.to_string(), "must be an object".to_owned());
            return None;
        };
        Some(Object { members, path, faults })
    }

    /// Reports a fault of a member, or with an empty name of the object.
    pub(crate) fn fault(&self, name: &'static str, description: impl Into<String>) {
        let path = match name {
            "" => self.path,
            name => self.path_of(name, None),
        };
        self.faults.add(path.to_string(), description.into());
    }

    fn path_of(&self, name: &'static str, index: Option<usize>) -> FieldPath<'_> {
        FieldPath { parent: Some(&self.path), name, index }
    }

    /// Returns the text of a member, null too, by its name in lowerCamelCase or snake_case; the last of equal names.
    pub(crate) fn member(&self, name: &str) -> Option<&'a str> {
        self.members.iter().rev().find(|(own, _)| is_spelling(own, name)).map(|(_, text)| *text)
    }

    /// Returns the text of a member that is not null.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.member(name).filter(|text| *text != "null")
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// Returns a string of at most so many bytes.
    pub(crate) fn string(&self, name: &'static str, most: usize) -> Option<String> {
        let Some(text) = string(self.raw(name)?) else {
            self.fault(name, "must be a string");
            return None;
        };
        if text.len() > most {
            self.fault(name, format!("must have at most {most} bytes"));
            return None;
        }
        Some(text.into_owned())
    }

    /// Returns a string that is not empty: ProtoJSON does not distinguish an empty one from none.
    pub(crate) fn word(&self, name: &'static str, most: usize) -> Option<String> {
        self.string(name, most).filter(|text| !text.is_empty())
    }

    /// Returns a string that must be there and not be empty.
    pub(crate) fn required(&self, name: &'static str, most: usize) -> String {
        let found = self.word(name, most);
        if found.is_none() && self.raw(name).is_none_or(|text| text == "\"\"") {
            self.fault(name, "is required");
        }
        found.unwrap_or_default()
    }

    /// Returns an id.
    pub(crate) fn id(&self, name: &'static str) -> Option<String> {
        self.line(name, MAX_ID)
    }

    /// Returns a string that is not empty and must not have control characters.
    pub(crate) fn line(&self, name: &'static str, most: usize) -> Option<String> {
        let line = self.word(name, most)?;
        self.check_line(name, &line);
        Some(line)
    }

    /// Returns an id that must be there.
    pub(crate) fn required_id(&self, name: &'static str) -> String {
        let id = self.required(name, MAX_ID);
        self.check_line(name, &id);
        id
    }

    /// Reports control characters, such as line breaks: the text would be put into a header, a path or a log line.
    pub(crate) fn check_line(&self, name: &'static str, text: &str) {
        if text.chars().any(char::is_control) {
            self.fault(name, "must not have control characters");
        }
    }

    /// Returns a boolean, as such or as a string.
    pub(crate) fn boolean(&self, name: &'static str) -> Option<bool> {
        match self.raw(name)? {
            "true" | "\"true\"" => Some(true),
            "false" | "\"false\"" => Some(false),
            _ => {
                self.fault(name, "must be true or false");
                None
            }
        }
    }

    /// Returns an integer of 32 bits, as such, with a zero fraction, or as a string.
    pub(crate) fn integer(&self, name: &'static str) -> Option<i32> {
        let text = self.raw(name)?;
        let number = string(text).unwrap_or(Cow::Borrowed(text));
        let integer = number.parse::<i32>().ok().or_else(|| {
            let double = number.parse::<f64>().ok().filter(|double| double.fract() == 0.0)?;
            (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&double).then_some(double as i32)
        });
        if integer.is_none() {
            self.fault(name, "must be an integer of 32 bits");
        }
        integer
    }

    /// Returns an integer that is not negative.
    pub(crate) fn count(&self, name: &'static str) -> Option<u32> {
        let number = self.integer(name)?;
        let count = u32::try_from(number).ok();
        if count.is_none() {
            self.fault(name, format!("must not be negative, got {number}"));
        }
        count
    }

    /// Returns an object as its text.
    pub(crate) fn metadata(&self, name: &'static str) -> Option<Json> {
        let text = self.raw(name)?;
        if !text.starts_with('{') {
            self.fault(name, "must be an object");
            return None;
        }
        Some(Json::part(text))
    }

    /// Returns a member that is an object.
    pub(crate) fn object<'s>(&'s self, name: &'static str) -> Option<Object<'a, 's>> {
        Object::at(self.raw(name)?, self.path_of(name, None), self.faults)
    }

    /// Returns the texts of a list of at most so many elements; none for an absent list.
    fn list(&self, name: &'static str, most: usize) -> Vec<&'a str> {
        let Some(text) = self.raw(name) else { return Vec::new() };
        let Some(list) = elements(text) else {
            self.fault(name, "must be a list");
            return Vec::new();
        };
        if list.len() > most {
            self.fault(name, format!("must have at most {most} elements"));
            return Vec::new();
        }
        list
    }

    /// Returns the objects of a list.
    pub(crate) fn objects<T>(
        &self,
        name: &'static str,
        most: usize,
        read: impl Fn(&Object<'a, '_>) -> Option<T>,
    ) -> Vec<T> {
        let list = self.list(name, most).into_iter().enumerate();
        let element = |(index, text)| Object::at(text, self.path_of(name, Some(index)), self.faults);
        list.filter_map(|indexed| read(&element(indexed)?)).collect()
    }

    /// Returns the strings of a list; a single string is a list of one.
    pub(crate) fn strings(&self, name: &'static str, most: usize, length: usize) -> Vec<String> {
        let is_string = self.raw(name).is_some_and(|text| text.starts_with('"'));
        let list = if is_string { self.raw(name).into_iter().collect() } else { self.list(name, most) };
        let mut found = Vec::new();
        for text in list {
            match string(text) {
                Some(text) if text.len() <= length => found.push(text.into_owned()),
                Some(_) => self.fault(name, format!("must have elements of at most {length} bytes")),
                None => self.fault(name, "must be a list of strings"),
            }
        }
        found
    }
}

/// Whether `given` is this name in lowerCamelCase or its form in snake_case.
fn is_spelling(given: &str, name: &str) -> bool {
    if given == name {
        return true;
    }
    let mut given = given.bytes();
    let same = name.bytes().all(|byte| match byte {
        b'A'..=b'Z' => given.next() == Some(b'_') && given.next() == Some(byte.to_ascii_lowercase()),
        byte => given.next() == Some(byte),
    });
    same && given.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(text: &str, read: impl FnOnce(&Object<'_, '_>)) -> Vec<String> {
        let faults = Faults::default();
        if let Some(object) = Object::root(text, &faults) {
            read(&object);
        }
        faults.finish().err().unwrap_or_default().iter().map(FieldViolation::to_string).collect()
    }

    #[test]
    fn a_name_has_two_spellings() {
        for (given, name) in [("messageId", "messageId"), ("message_id", "messageId"), ("url", "url")] {
            assert!(is_spelling(given, name), "{given}");
        }
        for (given, name) in
            [("messageid", "messageId"), ("message_", "messageId"), ("message_idx", "messageId"), ("", "url")]
        {
            assert!(!is_spelling(given, name), "{given}");
        }
    }

    #[test]
    fn a_fault_names_its_field() {
        let text = r#"{"a":{"b":[{},{"c":7}]},"n":-1,"s":[1],"t":"x\ny"}"#;
        let faults = faults_of(text, |object| {
            object.count("n");
            object.strings("s", 9, 9);
            object.id("t");
            let Some(a) = object.object("a") else { return };
            a.objects("b", 9, |b| b.word("c", 9));
            a.objects("b", 1, |_| Some(()));
            a.metadata("b");
        });
        assert_eq!(
            faults,
            [
                "n: must not be negative, got -1",
                "s: must be a list of strings",
                "t: must not have control characters",
                "a.b[1].c: must be a string",
                "a.b: must have at most 1 elements",
                "a.b: must be an object",
            ]
        );
        assert_eq!(faults_of("[]", |_| ()), [": must be an object"]);
    }

    #[test]
    fn numbers_and_booleans_may_be_strings_and_null_is_absent() {
        let text = r#"{"i":"7","f":7.0,"e":1e1,"b":"true","n":null,"z":"","bad":1.5,"big":3000000000}"#;
        let faults = faults_of(text, |object| {
            assert_eq!(
                (object.integer("i"), object.integer("f"), object.integer("e")),
                (Some(7), Some(7), Some(10))
            );
            assert_eq!(
                (object.boolean("b"), object.boolean("n"), object.word("z", 9)),
                (Some(true), None, None)
            );
            object.integer("bad");
            object.integer("big");
            object.required("z", 9);
            object.required("none", 9);
        });
        assert_eq!(
            faults,
            [
                "bad: must be an integer of 32 bits",
                "big: must be an integer of 32 bits",
                "z: is required",
                "none: is required",
            ]
        );
    }

    #[test]
    fn faults_are_bounded() {
        let many = format!(r#"{{"a":[{}]}}"#, ["1"; 100].join(","));
        assert_eq!(
            faults_of(&many, |object| drop(object.objects("a", 100, |_| Some(())))).len(),
            MAX_VIOLATIONS
        );
    }
}
