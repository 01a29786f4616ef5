//! Messages, artifacts and their parts.

use asp_json::Json;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

/// Sender of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// None, or one that this version does not know.
    #[default]
    Unspecified,
    User,
    Agent,
}

/// Bytes in standard base64 with padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64(String);

/// Readers of ProtoJSON accept both alphabets, with and without padding.
const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const ANY_STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, ANY_PADDING);
const ANY_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, ANY_PADDING);

impl Base64 {
    /// Encodes bytes.
    pub fn of(bytes: &[u8]) -> Base64 {
        Base64(STANDARD.encode(bytes))
    }

    /// Accepts base64 of either alphabet, with or without padding; `None` for another text.
    pub fn parse(text: &str) -> Option<Base64> {
        let is_url_safe = text.bytes().any(|byte| matches!(byte, b'-' | b'_'));
        let bytes = if is_url_safe { ANY_URL_SAFE.decode(text) } else { ANY_STANDARD.decode(text) }.ok()?;
        Some(Base64::of(&bytes))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the bytes.
    pub fn decode(&self) -> Vec<u8> {
        // Every constructor encodes.
        STANDARD.decode(&self.0).unwrap_or_default()
    }
}

/// Content of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum PartContent {
    Text(String),
    /// Bytes of a file.
    Raw(Base64),
    /// Address of a file.
    Url(String),
    /// Any JSON value. 0.3 has only objects: another value is an object's member `value` there.
    Data(Json),
}

/// One piece of a message or an artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub content: PartContent,
    /// Media type. 0.3 has none for text and data, and does not say it there.
    pub media_type: Option<String>,
    /// File name; as the media type.
    pub filename: Option<String>,
    /// An object.
    pub metadata: Option<Json>,
}

impl From<PartContent> for Part {
    fn from(content: PartContent) -> Part {
        Part { content, media_type: None, filename: None, metadata: None }
    }
}

/// One unit of communication.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub message_id: String,
    pub context_id: Option<String>,
    pub task_id: Option<String>,
    pub role: Role,
    pub parts: Vec<Part>,
    /// An object.
    pub metadata: Option<Json>,
    /// URIs of the extensions that contributed to the message.
    pub extensions: Vec<String>,
    pub reference_task_ids: Vec<String>,
}

/// Output of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Artifact {
    pub artifact_id: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub parts: Vec<Part>,
    /// An object.
    pub metadata: Option<Json>,
    pub extensions: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_either_alphabet_becomes_the_standard_one() {
        for (text, standard) in
            [("", ""), ("aGk=", "aGk="), ("aGk", "aGk="), ("-_8", "+/8="), ("-_8=", "+/8="), ("+/8", "+/8=")]
        {
            assert_eq!(Base64::parse(text).as_ref().map(Base64::as_str), Some(standard), "{text}");
        }
        for text in ["a", "a b", "+_8=", "äö", "aGk=="] {
            assert_eq!(Base64::parse(text), None, "{text}");
        }
        assert_eq!(Base64::of(b"\x00\xff").decode(), b"\x00\xff");
    }
}
