//! Conditions and preferences of a request: `If-Match` and `If-None-Match` (RFC 9110 section 13.1), `Prefer` (RFC
//! 7240).
//!
//! Refuses: malformed lists of tags. A malformed preference is ignored, as RFC 7240 requires. Uses nothing else of this
//! crate, so that it can be fuzzed alone.

use std::time::Duration;

/// Maximum number of entity tags in one list.
const MAX_TAGS: usize = 32;
/// Longest time that a response is held open for a preference.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// The tags of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags<'a> {
    /// `*`
    Any,
    /// Pairs of whether the tag is weak, and the tag without its quotes.
    These(Vec<(bool, &'a str)>),
}

impl Tags<'_> {
    /// Compares strongly, for `If-Match`.
    pub fn match_strongly(&self, tag: &str) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(tags) => tags.iter().any(|(is_weak, known)| !is_weak && *known == tag),
        }
    }

    /// Compares weakly, for `If-None-Match`.
    pub fn match_weakly(&self, tag: &str) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(tags) => tags.iter().any(|(_, known)| *known == tag),
        }
    }
}

/// Reads a list of entity tags; `None` if it is malformed.
pub fn tags(value: &str) -> Option<Tags<'_>> {
    let mut left = value.trim();
    if left == "*" {
        return Some(Tags::Any);
    }
    let mut tags = Vec::new();
    loop {
        let is_weak = left.starts_with("W/");
        let quoted = left.strip_prefix("W/").unwrap_or(left).strip_prefix('"')?;
        let (tag, after) = quoted.split_once('"')?;
        if tags.len() == MAX_TAGS || !tag.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        tags.push((is_weak, tag));
        let after = after.trim_start();
        if after.is_empty() {
            return Some(Tags::These(tags));
        }
        left = after.strip_prefix(',')?.trim_start();
    }
}

/// The preferences of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// Time that the response may be held open, at most [`MAX_WAIT`].
    pub wait: Option<Duration>,
    /// Whether the client answers the call's sampling requests.
    pub sampling: bool,
}

/// Reads the values of `Prefer`; if `wait` is repeated, the first one counts.
pub fn preferences<'a>(values: impl Iterator<Item = &'a str>) -> Preferences {
    let mut found = Preferences::default();
    let mut waits = false;
    for preference in values.flat_map(|value| value.split(',')) {
        // Parameters of a preference have no meaning here.
        let preference = preference.split(';').next().unwrap_or_default();
        let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "wait" if !waits => {
                waits = true;
                found.wait = seconds(value.trim().trim_matches('"')).map(|wait| wait.min(MAX_WAIT));
            }
            "sampling" => found.sampling = true,
            _ => {}
        }
    }
    found
}

/// Reads `delta-seconds` (RFC 9111 section 1.2.2); a number that does not fit becomes the maximum.
fn seconds(digits: &str) -> Option<Duration> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tags_is_read_with_commas_inside_the_quotes() {
        let read = tags("\"a,b\" , W/\"c\",\"\"").unwrap();
        assert_eq!(read, Tags::These(vec![(false, "a,b"), (true, "c"), (false, "")]));
        assert!(read.match_strongly("a,b") && !read.match_strongly("c") && read.match_weakly("c"));
        assert!(!read.match_weakly("b"));
        assert!(tags(" * ").unwrap().match_strongly("x"));
    }

    #[test]
    fn what_is_no_list_of_tags_is_refused() {
        let many = vec!["\"a\""; MAX_TAGS + 1].join(",");
        for bad in [
            "",
            "a",
            "\"a",
            "\"a\" \"b\"",
            "\"a\",",
            ",\"a\"",
            "w/\"a\"",
            "\"a b\"",
            "*,\"a\"",
            "\"\u{7f}\"",
            &many,
        ] {
            assert_eq!(tags(bad), None, "{bad}");
        }
    }

    #[test]
    fn preferences_are_read_leniently_and_bounded() {
        let of = |values: &[&str]| preferences(values.iter().copied());
        let waits = |seconds| Preferences { wait: Some(Duration::from_secs(seconds)), sampling: false };
        for (values, expected) in [
            (&["wait=10"][..], waits(10)),
            (&["respond-async, Wait = \"3\"; x=y"], waits(3)),
            (&["wait=1", "wait=2"], waits(1)),
            (&["wait=99999999999999999999999"], waits(60)),
            (&["wait=0"], waits(0)),
            (&["wait=-1, wait=5"], Preferences::default()),
            (&["wait", "x", "=,;"], Preferences::default()),
            (&["sampling"], Preferences { wait: None, sampling: true }),
            (&[], Preferences::default()),
        ] {
            assert_eq!(of(values), expected, "{values:?}");
        }
    }
}
