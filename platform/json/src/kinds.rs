//! JSON values that a decoder with doubles and Unicode strings changes or rejects: one table for the tests of all code
//! that passes JSON on (I-14).

/// Kind of value, with an example.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    /// JSON on one line.
    pub text: &'static str,
}

/// Kinds that RFC 8259 allows and that a decoder with doubles, Unicode strings and unique keys does not reproduce.
pub const KINDS: [Kind; 12] = [
    Kind { name: "a 128-bit integer", text: "340282366920938463463374607431768211455" },
    Kind { name: "a negative 128-bit integer", text: "-170141183460469231731687303715884105728" },
    Kind { name: "an integer between two doubles", text: "9007199254740993" },
    Kind { name: "a decimal of 30 digits", text: "0.123456789012345678901234567890" },
    Kind { name: "an integer written with an exponent", text: "1E+2" },
    Kind { name: "a decimal with a final zero", text: "1.50" },
    Kind { name: "a lone surrogate", text: r#""cut \ud800""# },
    Kind { name: "surrogates in the wrong order", text: r#""\uDC00\uD800""# },
    Kind { name: "keys of lone surrogates", text: r#"{"\ud83d":1,"\ud83e":2}"# },
    Kind { name: "keys equal after unescaping", text: r#"{"a":1,"\u0061":[{"x":2,"x":3}]}"# },
    Kind { name: "escapes that need not be", text: r#""\u00e4\/\u0041""# },
    Kind { name: "white space between tokens", text: "{ \"a\" : [ 1 ,\t2 ] }" },
];

impl Kind {
    /// Returns an object with the value, or the value itself if it is an object.
    pub fn object(&self) -> String {
        match self.text.starts_with('{') {
            true => self.text.to_owned(),
            false => format!(r#"{{"value":{}}}"#, self.text),
        }
    }
}

/// Returns one object with a value of each kind, and with equal keys of its own.
pub fn all() -> String {
    let members: Vec<String> = KINDS.iter().map(|kind| format!(r#""{}":{}"#, kind.name, kind.text)).collect();
    format!(r#"{{"a":1,{},"\u0061":2}}"#, members.join(","))
}

/// Returns an object with one string of so many ASCII letters and a lone surrogate.
pub fn long(letters: usize) -> String {
    format!(r#"{{"value":"{}\ud800"}}"#, "y".repeat(letters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;

    #[test]
    fn every_kind_is_json_on_one_line() {
        let objects = KINDS.iter().map(Kind::object);
        for text in objects.chain([all(), long(7)]) {
            assert_eq!(Json::parse(text.as_bytes()).unwrap().text(), text);
        }
    }
}
