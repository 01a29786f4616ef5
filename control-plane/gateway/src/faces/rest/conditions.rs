//! What a request asks beside its body: `If-Match` and `If-None-Match` (RFC 9110 section 13.1), `Prefer` (RFC 7240).
//!
//! Refuses: a list of tags that is none; what is malformed in a preference is ignored, as its RFC says. Uses nothing else
//! of this crate, so that it can be fuzzed alone.

use std::time::Duration;

/// Most entity tags of one list.
const MAX_TAGS: usize = 32;
/// The longest that a response is held open for a preference.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// The tags of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tags<'a> {
    /// `*`
    Any,
    /// Each with whether it is weak, without its quotes.
    These(Vec<(bool, &'a str)>),
}

impl Tags<'_> {
    /// The strong comparison, of `If-Match`.
    pub fn match_strongly(&self, tag: &str) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(tags) => tags.iter().any(|(is_weak, known)| !is_weak && *known == tag),
        }
    }

    /// The weak comparison, of `If-None-Match`.
    pub fn match_weakly(&self, tag: &str) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(tags) => tags.iter().any(|(_, known)| *known == tag),
        }
    }
}

/// Reads a list of entity tags; `None` where it is none.
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

/// What a client would like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// How long the response may be held open; within [`MAX_WAIT`].
    pub wait: Option<Duration>,
    /// Whether the client answers what a call asks a model.
    pub sampling: bool,
}

/// Reads the values of `Prefer`; of a preference that comes twice the first one counts.
pub fn preferences<'a>(values: impl Iterator<Item = &'a str>) -> Preferences {
    let mut found = Preferences::default();
    let mut waits = false;
    for preference in values.flat_map(|value| value.split(',')) {
        // Parameters after it have no meaning here.
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

/// `delta-seconds` (RFC 9111 section 1.2.2); more digits than fit are more seconds than anybody waits.
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
