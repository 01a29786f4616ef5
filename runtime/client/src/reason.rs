//! Reasons by which a runtime explains why it does not run a plugin (`Admission.reason`, supervisor.proto).

/// Returns the word before the sentence in `<reason>: <sentence>`.
pub fn word(reason: &str) -> &str {
    reason.split(':').next().unwrap_or_default().trim()
}

/// Whether only an operator can remedy the reason: the language, the sandbox or the package of the plugin is missing.
/// Any other reason, including an unknown one, may pass.
pub fn is_impossible(reason: &str) -> bool {
    matches!(word(reason), "language_absent" | "isolation" | "not_installed" | "digest_mismatch")
}
