//! The words by which a runtime says why it does not run a plugin (`Admission.reason`, supervisor.proto).

/// The word before the sentence in `<reason>: <sentence>`.
pub(super) fn word(reason: &str) -> &str {
    reason.split(':').next().unwrap_or_default().trim()
}

/// Whether it is one that only an operator can change: the language, the sandbox or the package of the plugin is not
/// there. Every other one, and an unknown one, may pass.
pub(super) fn is_impossible(reason: &str) -> bool {
    matches!(word(reason), "language_absent" | "isolation" | "not_installed" | "digest_mismatch")
}
