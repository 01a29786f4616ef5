//! The compact form of a token (RFC 7515 section 7.1), parsed without trusting it.
//!
//! Owns size, shape and encoding: exactly three segments of canonical base64url, JSON objects without duplicate
//! members. Refuses JSON serialisation, JWE (five segments), padding and non-zero trailing bits.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum length of a token in bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Parts of a token whose signature is not checked yet.
pub(crate) struct Compact<'a> {
    pub(crate) header: Map<String, Value>,
    pub(crate) claims: Map<String, Value>,
    /// `header.claims`, the bytes that were signed.
    pub(crate) signed: &'a str,
    /// base64url.
    pub(crate) signature: &'a str,
}

pub(crate) fn parse(token: &str) -> Option<Compact<'_>> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    if claims.contains('.') || signature.is_empty() {
        return None;
    }
    URL_SAFE_NO_PAD.decode(signature).ok()?;
    Some(Compact { header: object(header)?, claims: object(claims)?, signed, signature })
}

/// Whether a credential has the shape of a signed token, as opposed to an opaque one.
pub(crate) fn looks_like_jwt(token: &str) -> bool {
    token.split('.').count() == 3 && token.starts_with("ey")
}

fn object(segment: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(segment).ok()?;
    match serde_json::from_slice(&bytes).ok()? {
        StrictValue(Value::Object(map)) => Some(map),
        StrictValue(_) => None,
    }
}

/// JSON value in which no object repeats a member (RFC 7519 section 4 permits duplicates; this parser does not).
struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StrictValue, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = StrictValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without repeated members")
    }

    fn visit_unit<E>(self) -> Result<StrictValue, E> {
        Ok(StrictValue(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<StrictValue, E> {
        Ok(StrictValue(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<StrictValue, E> {
        Ok(StrictValue(Value::Number(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<StrictValue, E> {
        Ok(StrictValue(Value::Number(value.into())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<StrictValue, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not finite"))?;
        Ok(StrictValue(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<StrictValue, E> {
        Ok(StrictValue(Value::String(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<StrictValue, A::Error> {
        let mut array = Vec::new();
        while let Some(StrictValue(element)) = elements.next_element()? {
            array.push(element);
        }
        Ok(StrictValue(Value::Array(array)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<StrictValue, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let StrictValue(value) = members.next_value()?;
            if map.insert(key, value).is_some() {
                return Err(A::Error::custom("repeated member"));
            }
        }
        Ok(StrictValue(Value::Object(map)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn three_canonical_segments_are_taken_apart() {
        let token = token(r#"{"alg":"ES256"}"#, r#"{"sub":"a","n":[1,-2,0.5,null,true]}"#);
        let compact = parse(&token).unwrap();
        assert_eq!(compact.header["alg"], "ES256");
        assert_eq!(compact.claims["n"], serde_json::json!([1, -2, 0.5, null, true]));
        assert_eq!(compact.signature, "c2ln");
        assert!(token.starts_with(compact.signed));
    }

    #[test]
    fn any_other_form_is_refused() {
        let good = token("{}", "{}");
        assert!(parse(&good).is_some());
        let json_form = r#"{"payload":"e30","protected":"e30","signature":"c2ln"}"#.to_owned();
        let bad = [
            String::new(),
            "..".into(),
            "e30.e30".into(),
            "e30.e30.".into(),
            "e30.e30.c2ln.c2ln".into(),
            "e30.e30.c2ln.c2ln.c2ln".into(),
            "e30=.e30.c2ln".into(),
            "e30.e30.c2lnMQ==".into(),
            "e31.e30.c2ln".into(),
            "e30.e30.c2l".into(),
            "e30.e30.c+ln".into(),
            "e30. e30.c2ln".into(),
            "W10.e30.c2ln".into(),
            token("{}", "nonsense"),
            token("{}", "{}{}"),
            token(r#"{"alg":"ES256","alg":"none"}"#, "{}"),
            token("{}", r#"{"sub":"a","\u0073ub":"b"}"#),
            token("{}", r#"{"x":{"y":1,"y":2}}"#),
            token("{}", &"[".repeat(4000)),
            json_form,
            format!("e30.e30.{}", "A".repeat(MAX_TOKEN_BYTES)),
        ];
        for token in bad {
            assert!(parse(&token).is_none(), "{token:.80}");
        }
    }

    #[test]
    fn an_opaque_token_does_not_look_like_a_jwt() {
        assert!(looks_like_jwt("eyJ.e30.c2ln"));
        for opaque in ["", "abc", "a.b.c", "eyJ.x", "eyJ.a.b.c.d"] {
            assert!(!looks_like_jwt(opaque), "{opaque}");
        }
    }
}
