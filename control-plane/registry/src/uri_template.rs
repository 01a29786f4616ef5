//! URI templates of RFC 6570 level 1 (`{name}`), which may also be expanded with lists: parsed, expanded with a
//! call's arguments, and matched in linear time.
//!
//! Owns: the only parser of templates, so that the linter accepts exactly what the gateway expands. Refuses:
//! operators, modifiers except [`exploded`], and percent-encoded names, which level 1 does not need. Keeps true: an
//! argument fills its own place in the template and affects no other one: it never makes a dot segment or removes a
//! segment, even if a hop on the way decodes the path once more (RFC 3986 sections 5.2.4 and 6.2.2.3).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

/// Maximum length of a URI that is matched, in bytes.
const MAX_URI_LEN: usize = 8 * 1024;
/// Maximum length of a variable's name in bytes.
const MAX_NAME: usize = 128;
/// Maximum number of times a value is decoded to detect hidden dots. No hop on the way to a service decodes more
/// often.
const MAX_DECODES: usize = 8;
/// Characters to encode: all but the unreserved ones (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A parsed template: a sequence of literals and variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(String),
    Variable(String),
}

/// The reason why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    #[error("a `{{` without its `}}`")]
    NotClosed,
    #[error("a `}}` without its `{{`")]
    NotOpened,
    #[error("`{{{0}}}` is not a plain variable of letters, digits, underscores and single dots between them")]
    NotPlain(String),
    #[error("a template that is matched needs variables, each once, with fixed text between them")]
    Ambiguous,
}

/// The reason why a template cannot be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandFault {
    /// The argument is absent, null, or an empty list.
    #[error("`{0}` is missing")]
    Missing(String),
    #[error("`{0}` must be text, a number, a boolean or a list of them")]
    NoText(String),
    #[error(
        "`{0}` is sent in a header: use printable ASCII without a space at either end, and in a list no element with a comma"
    )]
    NoHeader(String),
    /// Names of all arguments in the path segment, comma-separated.
    #[error("`{0}` must not be or contain a `.` or `..` between slashes, in any encoding")]
    DotSegment(String),
    #[error("`{0}` must not be empty: it fills a segment of a path")]
    EmptySegment(String),
}

impl ExpandFault {
    /// Returns the argument at fault, the first if there are several.
    pub fn argument(&self) -> &str {
        let (ExpandFault::Missing(names)
        | ExpandFault::NoText(names)
        | ExpandFault::NoHeader(names)
        | ExpandFault::DotSegment(names)
        | ExpandFault::EmptySegment(names)) = self;
        names.split('`').next().unwrap_or(names)
    }
}

impl UriTemplate {
    /// Parses a template that is only expanded.
    pub fn parse(text: &str) -> Result<UriTemplate, TemplateFault> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) = match rest.split_once('{') {
                None => (rest, None),
                Some((literal, after)) => (literal, Some(after)),
            };
            if literal.contains('}') {
                return Err(TemplateFault::NotOpened);
            }
            if !literal.is_empty() {
                parts.push(TemplatePart::Literal(literal.into()));
            }
            let Some(after) = after else { break };
            let (name, tail) = after.split_once('}').ok_or(TemplateFault::NotClosed)?;
            if !is_variable(name) {
                return Err(TemplateFault::NotPlain(name.chars().take(MAX_NAME).collect()));
            }
            parts.push(TemplatePart::Variable(name.into()));
            rest = tail;
        }
        Ok(UriTemplate { parts })
    }

    /// Parses a template that URIs are matched against. A URI must match in only one way, and without backtracking
    /// (CVE-2026-0621 was a matcher that backtracked).
    pub fn parse_matching(text: &str) -> Result<UriTemplate, TemplateFault> {
        let template = UriTemplate::parse(text)?;
        let names: Vec<&str> = template.variables().collect();
        let is_repeated =
            names.iter().enumerate().any(|(at, name)| names.iter().skip(at + 1).any(|other| other == name));
        let is_adjacent = template
            .parts
            .windows(2)
            .any(|pair| matches!(pair, [TemplatePart::Variable(_), TemplatePart::Variable(_)]));
        if names.is_empty() || is_repeated || is_adjacent {
            Err(TemplateFault::Ambiguous)
        } else {
            Ok(template)
        }
    }

    /// Returns the variables of `uri`, percent-decoded; `None` if it does not match. A variable is not empty and
    /// contains no `/`, because level 1 expansion encodes it.
    pub fn matches(&self, uri: &str) -> Option<Map<String, Value>> {
        if uri.len() > MAX_URI_LEN {
            return None;
        }
        let mut variables = Map::new();
        let mut rest = uri;
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                TemplatePart::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                TemplatePart::Variable(name) => {
                    let end = match parts.peek() {
                        Some(TemplatePart::Literal(next)) => rest.find(next.as_str())?,
                        _ => rest.len(),
                    };
                    let (value, tail) = rest.split_at_checked(end)?;
                    if value.is_empty() || value.contains('/') {
                        return None;
                    }
                    variables.insert(name.clone(), Value::String(decoded(value)?));
                    rest = tail;
                }
            }
        }
        rest.is_empty().then_some(variables)
    }

    /// Replaces every variable by its percent-encoded value, with commas between the elements of a list (RFC 6570
    /// section 2.4.2). An empty list counts as absent.
    pub fn expand(&self, values: &Map<String, Value>) -> Result<String, ExpandFault> {
        self.expand_with(values, |_, texts| {
            let texts: Vec<String> = texts.iter().map(|text| encoded(text)).collect();
            Some(texts.join(","))
        })
    }

    /// Expands the template as the value of a header, in which nothing is encoded (OpenAPI 3.1.1, Parameter Object).
    pub fn expand_header(&self, values: &Map<String, Value>) -> Result<String, ExpandFault> {
        self.expand_with(values, |value, texts| {
            let is_plain =
                |text: &str| text.trim() == text && text.bytes().all(|b| (b' '..=b'~').contains(&b));
            let fits = |text: &str| is_plain(text) && !(value.is_array() && text.contains(','));
            texts.iter().all(|text| fits(text)).then(|| texts.join(","))
        })
    }

    /// Expands the template; `write` formats a variable from its value and texts, and returns `None` if a header
    /// cannot carry them.
    fn expand_with(
        &self,
        values: &Map<String, Value>,
        write: impl Fn(&Value, &[Cow<'_, str>]) -> Option<String>,
    ) -> Result<String, ExpandFault> {
        let mut expansion = Expansion::default();
        for part in &self.parts {
            match part {
                TemplatePart::Literal(literal) => expansion.literal(literal)?,
                TemplatePart::Variable(name) => {
                    let value = values.get(name).filter(|value| !is_absent(value));
                    let value = value.ok_or_else(|| ExpandFault::Missing(name.clone()))?;
                    let texts = values_as_text(value).ok_or_else(|| ExpandFault::NoText(name.clone()))?;
                    let text = write(value, &texts).ok_or_else(|| ExpandFault::NoHeader(name.clone()))?;
                    expansion.variable(name, &text);
                }
            }
        }
        expansion.done()
    }

    /// Replaces every variable by a plain letter, so that the rest can be checked as a URI.
    pub fn sample_uri(&self) -> String {
        let text = self.parts.iter().map(|part| match part {
            TemplatePart::Literal(literal) => literal.as_str(),
            TemplatePart::Variable(_) => "v",
        });
        text.collect()
    }

    /// Returns the names of the variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Variable(name) => Some(name.as_str()),
            TemplatePart::Literal(_) => None,
        })
    }
}

/// An expansion in progress. The text between two slashes is checked as a whole: several variables, or a variable and
/// fixed text, may form a dot segment together.
#[derive(Default)]
struct Expansion<'a> {
    done: String,
    segment: String,
    /// Variables of the segment.
    names: Vec<&'a str>,
    /// Whether a slash precedes the segment; other text, such as a query's value, is not a path.
    is_in_path: bool,
    /// Whether the path has ended (`?`, `#`, or `&` in a query); later text belongs to no segment.
    is_over: bool,
}

impl<'a> Expansion<'a> {
    fn literal(&mut self, text: &str) -> Result<(), ExpandFault> {
        for character in text.chars() {
            match character {
                '/' => {
                    self.is_in_path = true;
                    self.check_segment()?;
                    self.is_over = false;
                }
                '?' | '#' | '&' if !self.is_over => {
                    self.check_segment()?;
                    self.is_over = true;
                }
                _ if !self.is_over => self.segment.push(character),
                _ => {}
            }
            self.done.push(character);
        }
        Ok(())
    }

    fn variable(&mut self, name: &'a str, text: &str) {
        if !self.is_over {
            self.segment.push_str(text);
            self.names.push(name);
        }
        self.done.push_str(text);
    }

    fn check_segment(&mut self) -> Result<(), ExpandFault> {
        let segment = std::mem::take(&mut self.segment);
        let names = std::mem::take(&mut self.names);
        if names.is_empty() || !self.is_in_path {
            return Ok(());
        }
        let shown = || names.join("`, `");
        if segment.is_empty() {
            return Err(ExpandFault::EmptySegment(shown()));
        }
        if hides_dots(&segment) { Err(ExpandFault::DotSegment(shown())) } else { Ok(()) }
    }

    fn done(mut self) -> Result<String, ExpandFault> {
        self.check_segment()?;
        Ok(self.done)
    }
}

/// Percent-encodes everything but the unreserved characters (RFC 3986 section 2.3).
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn decoded(text: &str) -> Option<String> {
    let mut escapes = text.split('%');
    escapes.next();
    let is_complete =
        |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !escapes.all(is_complete) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// Returns the variable of a text that is exactly `{name*}`, the explode modifier of RFC 6570 section 2.4.2: a query
/// parameter that is repeated for a list and becomes several for an object.
pub fn exploded(text: &str) -> Option<&str> {
    text.strip_prefix('{')?.strip_suffix("*}").filter(|name| is_variable(name))
}

/// Whether a variable with this value counts as undefined (RFC 6570 section 2.3).
fn is_absent(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Returns a value, or the elements of a list, as texts; `None` if any has no plain text.
fn values_as_text(value: &Value) -> Option<Vec<Cow<'_, str>>> {
    match value {
        Value::Array(elements) => elements.iter().map(value_as_text).collect(),
        one => Some(vec![value_as_text(one)?]),
    }
}

/// Returns a value as text; `None` if it has no plain text.
fn value_as_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether a segment is a dot segment, or becomes one for a program that decodes it, reads a backslash as a slash,
/// drops control characters, or cuts off parameters (`..;x`, RFC 3986 section 3.3).
fn hides_dots(segment: &str) -> bool {
    let mut text = segment.to_owned();
    for _ in 0..MAX_DECODES {
        if text.split(['/', '\\']).any(is_dots) {
            return true;
        }
        let next = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if next == text {
            return false;
        }
        text = next;
    }
    text.split(['/', '\\']).any(is_dots)
}

fn is_dots(piece: &str) -> bool {
    let visible: String = piece.chars().filter(|character| !character.is_control()).collect();
    matches!(visible.split([';', '?', '#']).next(), Some("." | ".."))
}

/// Whether the text is a variable name of RFC 6570 section 2.3, without percent-encoded triplets.
fn is_variable(text: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.len() <= MAX_NAME && text.split('.').all(is_plain)
}

#[cfg(test)]
mod tests;
