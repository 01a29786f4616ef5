//! The announced end of a primitive's support.
//!
//! Refuses a text that is no date, a replacement that is no id or the primitive itself, and kinds that no list contains.

use super::name::{escape, is_name};
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::Spec;

/// Maximum length of the reason, which is part of descriptions, in bytes.
const MAX_REASON: usize = 1000;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    let Some(deprecation) = &spec.deprecated else { return };
    if !spec.kind.is_exposable() {
        let message = format!("`deprecated` means nothing for a primitive of type {}", spec.kind.word());
        findings.add(
            FaultCode::MisplacedKey,
            "/deprecated",
            message,
            "remove `deprecated` or correct `type`",
        );
    }
    if deprecation.until_unix_s().is_none() {
        let message = format!("`{}` is not a date", escape(&deprecation.until));
        findings.add(FaultCode::BadValue, "/deprecated/until", message, "write a day as YYYY-MM-DD");
    }
    if let Some(replacement) = &deprecation.replacement
        && (!is_name(replacement) || *replacement == spec.id)
    {
        let message = format!("`{}` is not the id of another primitive", escape(replacement));
        findings.add(FaultCode::BadValue, "/deprecated/use", message, "name the primitive to call instead");
    }
    if deprecation.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
        let message = format!("the reason is longer than {MAX_REASON} bytes");
        findings.add(FaultCode::TextTooLong, "/deprecated/reason", message, "shorten it");
    }
}
