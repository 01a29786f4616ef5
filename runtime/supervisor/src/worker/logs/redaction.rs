//! A worker's named secrets in its log lines and failures, replaced by `***`.
//!
//! Keeps true: a value, and each line of one that has several, is found as it is; what the code makes of it (another encoding, a
//! part) is not.

use std::borrow::Cow;

use asp_platform::secret::Secret;

/// Minimum length of a value in bytes: shorter ones are in too many other words.
const SHORTEST: usize = 4;
/// Minimum length of a line of a value that has several.
const SHORTEST_LINE: usize = 8;
const REDACTED: &str = "***";

/// Texts that are replaced, the longest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Redaction(Vec<Secret>);

impl Redaction {
    pub(super) fn of<'a>(secrets: impl Iterator<Item = &'a Secret>) -> Redaction {
        let mut texts: Vec<&str> = Vec::new();
        for secret in secrets.map(Secret::expose) {
            texts.extend(Some(secret).filter(|text| text.len() >= SHORTEST));
            if secret.contains('\n') {
                texts.extend(secret.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE));
            }
        }
        // A secret may be a part of another one.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Redaction(texts.into_iter().map(|text| Secret::new(text.to_owned())).collect())
    }

    pub(super) fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut redacted = Cow::Borrowed(text);
        for secret in self.0.iter().map(Secret::expose) {
            if redacted.contains(secret) {
                redacted = Cow::Owned(redacted.replace(secret, REDACTED));
            }
        }
        redacted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_secrets_do_not_show_in_its_lines() {
        let secrets = ["hunter2", "hunter2-of-the-crm", "ab", "-----BEGIN KEY-----\nMIIEvAIBADAN\n}\n"];
        let secrets = secrets.map(|text| Secret::new(text.to_owned()));
        let redaction = Redaction::of(secrets.iter());
        let table = [
            ("key hunter2-of-the-crm, password=hunter2!", "key ***, password=***!"),
            ("about a cab", "about a cab"),
            ("MIIEvAIBADAN", "***"),
            ("{}", "{}"),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(redaction.apply(text), expected);
        }
        assert!(!format!("{redaction:?}").contains("hunter2"));
        assert_eq!(Redaction::default().apply("hunter2"), "hunter2");
    }
}
