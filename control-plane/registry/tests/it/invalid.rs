//! The samples of `primitives/invalid/`: one for each fault code, with the line, place and hint that a user gets. A
//! sample is `<code>.yaml`, or a folder `<code>/` that is a primitives root of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use asp_registry::{CheckReport, FaultCode, Source, check, read_dir};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives/invalid")
}

fn sources(code: &str) -> Vec<Source> {
    let folder = root().join(code);
    if folder.is_dir() {
        return read_dir(&folder).expect("the sample folder is readable");
    }
    let file = format!("{code}.yaml");
    let text = fs::read_to_string(root().join(&file)).expect("the sample is readable");
    vec![Source { path: format!("sample/{file}"), text }]
}

fn found(report: &CheckReport) -> Vec<Value> {
    let all = report.faults.iter().chain(&report.warnings);
    all.map(|fault| {
        json!({
            "code": fault.code.as_str(), "file": fault.file, "line": fault.line, "path": fault.path,
            "hint": fault.hint,
        })
    })
    .collect()
}

#[test]
fn every_sample_gives_exactly_its_fault() {
    let mut wrong = Vec::new();
    for code in FaultCode::ALL {
        let code = code.as_str();
        let expected = fs::read_to_string(root().join(format!("{code}.expected.json"))).expect(code);
        let expected: Value = serde_json::from_str(&expected).expect(code);
        assert_eq!(expected["code"], code);
        let found = found(&check(&sources(code)));
        if found != [expected.clone()] {
            wrong.push(format!("{code}\n  wants {expected}\n  found {}", Value::Array(found)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_catalog_comes_with_warnings_and_never_with_faults() {
    for code in FaultCode::ALL {
        let report = check(&sources(code.as_str()));
        assert_eq!(report.catalog.is_some(), code.is_warning(), "{}", code.as_str());
        assert_eq!(report.faults.is_empty(), code.is_warning(), "{}", code.as_str());
    }
}

#[test]
fn samples_and_codes_match_one_to_one() {
    let mut samples = BTreeSet::new();
    let mut expectations = BTreeSet::new();
    for entry in fs::read_dir(root()).expect("primitives/invalid is there") {
        let name = entry.expect("readable").file_name().into_string().expect("text");
        match name.strip_suffix(".expected.json") {
            Some(code) => expectations.insert(code.to_string()),
            None => samples.insert(name.trim_end_matches(".yaml").to_string()),
        };
    }
    let codes: BTreeSet<String> = FaultCode::ALL.iter().map(|code| code.as_str().to_string()).collect();
    assert_eq!(codes.len(), FaultCode::ALL.len(), "two codes share a name");
    assert_eq!(samples, codes);
    assert_eq!(expectations, codes);
}
