//! I-2: one pipeline, many protocols. Protocols are codecs: what a call may, how often and with what is decided in the
//! pipeline, which every protocol reaches by beginning a call.

use std::fs;
use std::path::{Path, PathBuf};

/// Modules for the pipeline alone. `entitlement` is missing, because lists use it too (I-10), and `resolve`, because a
/// protocol names what is called.
const STAGES: [&str; 13] = [
    "pipeline::limits",
    "pipeline::input",
    "pipeline::ledger",
    "pipeline::approve",
    "pipeline::execute",
    "telemetry::audit",
    "asp_snapshot::policy",
    "asp_snapshot::schema",
    "asp_backends",
    "asp_call::execution",
    "asp_call::durable",
    ".internals()",
    "asp_store",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn stages_named(text: &str) -> Vec<&'static str> {
    STAGES.into_iter().filter(|stage| text.contains(stage)).collect()
}

#[test]
fn no_protocol_has_policy_limits_validation_ledger_or_audit_of_its_own() {
    let mut protocols = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocols/src"), &mut protocols);
    assert!(protocols.len() > 5, "the protocols are not where this test looks: {protocols:?}");
    for file in protocols {
        let named = stages_named(&fs::read_to_string(&file).unwrap());
        assert!(named.is_empty(), "{} uses {named:?}", file.display());
    }
    assert_eq!(
        stages_named("use asp_pipeline::pipeline::limits::admit;"),
        ["pipeline::limits"],
        "the test can find one"
    );
}
