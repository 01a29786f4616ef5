//! The parts of an object or an array, each with its text.

use std::borrow::Cow;
use std::collections::HashMap;

use super::Json;
use crate::cursor::{Cursor, Syntax, Value};

/// Returns the members of an object in order, each with its text, including those with equal keys; `None` if the text
/// is not an object.
pub fn members(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let mut found = Vec::new();
    let read = read_object(text, |key, value| found.push((key, value)));
    read.ok().map(|()| found)
}

/// Reads an object; `member` takes each key with the text of its value.
fn read_object<'a>(text: &'a str, mut member: impl FnMut(Cow<'a, str>, &'a str)) -> Result<(), Syntax> {
    let mut cursor = Cursor::new(text.as_bytes())?;
    cursor.object_with_keys(|cursor, key| {
        member(key.unescape(), cursor.text()?);
        Ok(())
    })?;
    cursor.end()
}

/// Reads an array; `element` takes the text of each element, and ends the reading by an error.
fn read_array<'a>(
    text: &'a str,
    mut element: impl FnMut(&'a str) -> Result<(), Syntax>,
) -> Result<(), Syntax> {
    let mut cursor = Cursor::new(text.as_bytes())?;
    cursor.array(|cursor| element(cursor.text()?))?;
    cursor.end()
}

/// Returns the value of a string; `None` if the text is something else.
pub fn string(text: &str) -> Option<Cow<'_, str>> {
    let mut cursor = Cursor::new(text.as_bytes()).ok()?;
    match cursor.value().ok()? {
        Value::String(literal) if cursor.end().is_ok() => Some(literal.unescape()),
        _ => None,
    }
}

/// Returns the texts of these members, in the order of `names`; `None` if the text is not an object. The last of equal
/// keys counts. Memory does not grow with the number of members.
pub fn named<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Option<[Option<&'a str>; N]> {
    let mut found = [None; N];
    let read = read_object(text, |key, value| {
        let wanted = found.iter_mut().zip(names).filter(|(_, name)| *name == key);
        wanted.for_each(|(slot, _)| *slot = Some(value));
    });
    read.ok().map(|()| found)
}

/// Returns the texts of an array's first elements, at most `limit`; `None` if the text is not an array. The rest is not
/// read.
pub fn first_elements(text: &str, limit: usize) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let read = read_array(text, |element| {
        found.push(element);
        if found.len() < limit { Ok(()) } else { Err(Syntax) }
    });
    (read.is_ok() || (limit > 0 && found.len() == limit)).then_some(found)
}

/// Returns the elements of an array, each with its text; `None` if the text is not an array.
pub fn elements(text: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    let read = read_array(text, |element| {
        found.push(element);
        Ok(())
    });
    read.ok().map(|()| found)
}

/// Appends a string as JSON.
pub fn write_string(text: &mut Vec<u8>, string: &str) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(text, string);
}

/// Number of members up to which their names are compared one by one. Most objects have a handful, for which an index
/// would cost more than it saves.
const FEW: usize = 32;

/// Members of an object that is passed on, such as `_meta`: each name once, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Members(Vec<(String, Json)>);

impl Members {
    /// Returns the members of an object; none for other values. The last of equal keys counts.
    pub fn of(json: &Json) -> Members {
        Members::select(json.text(), |_| true)
    }

    /// Returns those members of an object's text whose names fit; none for other values. The last of equal keys counts.
    pub fn select(text: &str, fits: impl Fn(&str) -> bool) -> Members {
        let mut found = MembersBuilder::default();
        let read = read_object(text, |name, value| {
            if fits(&name) {
                found.put(name.into_owned(), Json::part(value));
            }
        });
        read.map(|()| Members(found.members)).unwrap_or_default()
    }

    /// Sets a member.
    pub fn insert(&mut self, name: &str, value: impl Into<Json>) {
        let value = value.into();
        match self.0.iter_mut().find(|(own, _)| own == name) {
            Some((_, own)) => *own = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let at = self.0.iter().position(|(own, _)| own == name)?;
        Some(self.0.remove(at).1)
    }

    /// Returns a member.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Keeps only members whose names fit.
    pub fn retain(&mut self, fits: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| fits(name));
    }

    /// Iterates over all members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the object with these members.
    pub fn to_json(&self) -> Json {
        let mut text = Vec::new();
        self.write(&mut text);
        // Composed of texts.
        Json::part(String::from_utf8(text).unwrap_or_else(|_| "null".to_owned()))
    }

    /// Appends the object with these members as text.
    fn write(&self, text: &mut Vec<u8>) {
        let length: usize = self.iter().map(|(name, value)| name.len() + value.text().len() + 4).sum();
        text.reserve(length + 2);
        text.push(b'{');
        for (at, (name, value)) in self.iter().enumerate() {
            if at > 0 {
                text.push(b',');
            }
            write_string(text, name);
            text.push(b':');
            text.extend_from_slice(value.text().as_bytes());
        }
        text.push(b'}');
    }
}

/// Collects members: of equal names the last value counts, at the place of the first.
#[derive(Default)]
struct MembersBuilder {
    members: Vec<(String, Json)>,
    /// Positions of the names, once there are more than a few.
    positions: HashMap<String, usize>,
}

impl MembersBuilder {
    fn put(&mut self, name: String, value: Json) {
        let known = match self.positions.is_empty() {
            true => self.members.iter().position(|(own, _)| *own == name),
            false => self.positions.get(&name).copied(),
        };
        if let Some((_, own)) = known.and_then(|at| self.members.get_mut(at)) {
            *own = value;
            return;
        }
        if !self.positions.is_empty() {
            self.positions.insert(name.clone(), self.members.len());
        }
        self.members.push((name, value));
        if self.members.len() == FEW {
            self.positions = self.members.iter().map(|(name, _)| name.clone()).zip(0..).collect();
        }
    }
}

impl<N: Into<String>, V: Into<Json>> FromIterator<(N, V)> for Members {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(items: I) -> Members {
        let mut found = MembersBuilder::default();
        items.into_iter().for_each(|(name, value)| found.put(name.into(), value.into()));
        Members(found.members)
    }
}
