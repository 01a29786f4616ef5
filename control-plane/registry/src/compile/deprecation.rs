//! The announced end of a primitive's support, for programs and for models.

use asp_proto::snapshot;
use serde_json::{Map, Value, json};

use crate::spec::{Deprecation, Spec};

/// Member of `_meta` in lists of MCP.
pub(super) const META: &str = "asp/deprecated";
/// Tag of a skill.
pub(super) const TAG: &str = "deprecated";

/// Returns the note for descriptions; `None` without a deprecation.
pub(super) fn note(spec: &Spec) -> Option<String> {
    let Deprecation { until, replacement, reason, refuse } = spec.deprecated.as_ref()?;
    let mut note = match refuse {
        true => format!("Deprecated: calls are refused from {until} on."),
        false => format!("Deprecated: not supported from {until} on."),
    };
    if let Some(replacement) = replacement {
        note.push_str(&format!(" Use {replacement} instead."));
    }
    if let Some(reason) = reason {
        note.push_str(&format!(" {reason}"));
    }
    Some(note)
}

/// Returns the same for programs.
pub(super) fn meta(deprecation: &Deprecation) -> Value {
    let Deprecation { until, replacement, reason, refuse } = deprecation;
    let texts = [("until", Some(until)), ("use", replacement.as_ref()), ("reason", reason.as_ref())];
    let members = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text?))));
    Value::Object(members.chain([("refuse".to_owned(), json!(refuse))]).collect::<Map<_, _>>())
}

/// Returns the same for the snapshot.
pub(super) fn compiled(spec: &Spec) -> Option<snapshot::Deprecation> {
    let deprecation = spec.deprecated.as_ref()?;
    Some(snapshot::Deprecation {
        until: deprecation.until.clone(),
        until_unix_s: deprecation.until_unix_s().unwrap_or_default(),
        replacement: deprecation.replacement.clone().unwrap_or_default(),
        reason: deprecation.reason.clone().unwrap_or_default(),
        refuse: deprecation.refuse,
    })
}
