//! Keys that an object repeats.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::cursor::{Cursor, Syntax};

/// Returns the JSON Pointer (RFC 6901) of the first repeated key, at any depth. Keys are compared as in the view:
/// without escapes, and with U+FFFD in place of a lone surrogate. Reads the text once.
pub fn repeated(text: &str) -> Option<String> {
    let mut search = Search { path: Vec::new(), found: None };
    let mut cursor = Cursor::new(text.as_bytes()).ok()?;
    // An error stops the search.
    search.value(&mut cursor).err()?;
    search.found
}

/// Step from a value to one of its parts.
enum PointerStep<'a> {
    Key(Cow<'a, str>),
    Index(usize),
}

struct Search<'a> {
    /// Path to the value being read.
    path: Vec<PointerStep<'a>>,
    found: Option<String>,
}

impl<'a> Search<'a> {
    /// Reads the next value. The recursion is bounded by the cursor's depth limit.
    fn value(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Syntax> {
        match cursor.peek() {
            Some(b'{') => self.object(cursor),
            Some(b'[') => self.array(cursor),
            _ => cursor.value().map(|_| ()),
        }
    }

    fn object(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Syntax> {
        let mut keys: HashSet<Cow<'a, str>> = HashSet::new();
        cursor.object_with_keys(|cursor, key| {
            let key = key.unescape();
            self.path.push(PointerStep::Key(key.clone()));
            if !keys.insert(key) {
                self.found = Some(self.pointer());
                return Err(Syntax);
            }
            self.value(cursor)?;
            self.path.pop();
            Ok(())
        })
    }

    fn array(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Syntax> {
        let mut index = 0;
        cursor.array(|cursor| {
            self.path.push(PointerStep::Index(index));
            index += 1;
            self.value(cursor)?;
            self.path.pop();
            Ok(())
        })
    }

    fn pointer(&self) -> String {
        let token = |step: &PointerStep<'a>| match step {
            PointerStep::Key(key) => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            PointerStep::Index(index) => format!("/{index}"),
        };
        self.path.iter().map(token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repeated_key_is_named_by_its_pointer() {
        for (text, pointer) in [
            (r#"{"path":"/etc/shadow","path":"/srv/ok"}"#, "/path"),
            (r#"{"path":1,"p\u0061th":2}"#, "/path"),
            (r#"{"\ud83d":1,"\ud83e":2}"#, "/\u{fffd}"),
            (r#"{"\ud83d":1,"\ufffd":2}"#, "/\u{fffd}"),
            (r#"{"a":[0,{"b/c":{"~":1,"~":2}}]}"#, "/a/1/b~1c/~0"),
            (r#"{"a":{"b":1,"b":1},"a":1}"#, "/a/b"),
            (r#"{"a":{"b":1},"c":{"b":1},"a":{}}"#, "/a"),
            (r#"{"":1,"":1}"#, "/"),
        ] {
            assert_eq!(repeated(text).as_deref(), Some(pointer), "{text}");
        }
    }

    #[test]
    fn keys_of_different_objects_and_texts_are_no_repetition() {
        for text in [
            r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}],"A":"a"}"#,
            r#"["a","a"]"#,
            "1",
            "{}",
            "",
            r#"{"a":1,"#,
        ] {
            assert_eq!(repeated(text), None, "{text}");
        }
    }

    #[test]
    fn many_keys_and_deep_texts_are_read_once() {
        let keys: Vec<String> = (0..300_000).map(|n| format!(r#""k{n}":{n}"#)).collect();
        let text = format!("{{{},\"k0\":1}}", keys.join(","));
        assert_eq!(repeated(&text).as_deref(), Some("/k0"));
        let deep = format!("{}{}{}", "[".repeat(125), r#"{"a":1,"a":2}"#, "]".repeat(125));
        assert_eq!(repeated(&deep), Some(format!("{}/a", "/0".repeat(125))));
    }
}
