//! `asp-bench --quick` measures every row and none of its requests fails. Its figures are not looked at. The peer is left
//! out: only `make bench` installs it.

// Test code may fail loudly; Clippy sees only the `#[test]` itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use asp_e2e::tool::Build;
use serde_json::Value;
use tempfile::TempDir;

const ROWS: [&str; 6] = ["direct", "envoy", "native", "filter", "gateway", "path"];
const VARIANTS: [&str; 11] = [
    "envoy-modern",
    "envoy-get",
    "noop",
    "filter-open",
    "filter-open-modern",
    "filter-modern",
    "filter-get",
    "native-modern",
    "native-rs256",
    "filter-rs256",
    "path-modern",
];

const IDENTITY: [&str; 11] = [
    "nobody",
    "jwt",
    "opaque",
    "machine key",
    "service, nothing",
    "service, the platform's token",
    "service, token exchange",
    "service, bearer",
    "service, basic",
    "service, header",
    "service, OAuth client",
];

/// Groups of rows that a smoke run measures.
const GROUPS: [&str; 9] =
    ["edge", "identity", "decisions", "changes", "plugins", "streams", "agents", "first-day", "compare"];

#[test]
fn a_quick_run_reports_every_row_without_an_error() {
    let out = tempfile::tempdir().unwrap();
    let baseline = baseline();
    let output = Command::new(env!("CARGO_BIN_EXE_asp-bench"))
        .arg("--quick")
        .args(GROUPS.iter().flat_map(|group| ["--only", *group]))
        .arg("--baseline")
        .arg(baseline.path())
        .arg("--out")
        .arg(out.path())
        .output()
        .unwrap();
    let said =
        format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    let report = report(out.path());

    let measured = report["measurements"].as_array().unwrap();
    let mut seen = BTreeSet::new();
    for measurement in measured {
        let row = measurement["row"].as_str().unwrap();
        let phase = measurement["phase"].as_str().unwrap();
        assert_eq!(measurement["errors"], 0, "{row} {phase}");
        assert!(measurement["requests"].as_u64().unwrap() > 0, "{row} {phase}");
        assert!(measurement["p50_us"].as_f64().unwrap() > 0.0, "{row} {phase}");
        let envoy = measurement["envoy_cpu_us"].as_f64();
        assert_eq!(
            envoy.is_some_and(|cpu| cpu > 0.0),
            !["direct", "gateway"].contains(&row),
            "{row} {phase}"
        );
        seen.insert(format!("{row} {phase}"));
    }
    let expected: BTreeSet<String> = ROWS
        .iter()
        .flat_map(|row| ["cold", "warm", "saturation"].map(|phase| format!("{row} {phase}")))
        .chain(VARIANTS.iter().flat_map(|row| ["cold", "warm"].map(|phase| format!("{row} {phase}"))))
        .collect();
    assert_eq!(seen, expected);

    for kind in report["enforcement"].as_array().unwrap() {
        assert_eq!(kind["first_ms"].as_array().unwrap().len(), 3, "{kind}");
    }
    assert!(report["agreements"].as_array().unwrap().len() > 10);
    assert!(!report["goals"].as_array().unwrap().is_empty());
    check_identity(&report["identity"]);
    check_decisions(&report["decisions"]);
    check_changes(&report["changes"]);
    check_plugins(&report["plugins"]);
    let streams = &report["streams"];
    assert_eq!(streams["told_ms"].as_array().unwrap().len() as u64, streams["streams"].as_u64().unwrap());
    check_agents(&report["agents"]);
    check_first_day(&report["first_day"]);
    check_comparison(&report["comparison"]);
}

/// What `scripts/bench-against` would lay out, of this very build.
fn baseline() -> TempDir {
    let Build { root, asp, filter_wasm } = Build::own().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for (name, of) in [("source", root), ("asp", asp), ("asp_filter.wasm", filter_wasm)] {
        symlink(of, directory.path().join(name)).unwrap();
    }
    directory
}

/// Every kind of caller and of proof was measured, cold and warm, and no call failed.
fn check_identity(found: &Value) {
    let measured = found["measurements"].as_array().unwrap();
    assert!(measured.iter().all(|one| one["errors"] == 0 && one["gateway_cpu_us"].as_f64().unwrap() > 0.0));
    let seen: Vec<_> = measured.iter().map(|one| (one["row"].as_str().unwrap(), &one["phase"])).collect();
    assert_eq!(seen.len(), IDENTITY.len() * 2);
    for row in IDENTITY {
        assert!(
            ["cold", "warm"].iter().all(|phase| seen.iter().any(|one| one.0 == row && one.1 == phase)),
            "{row}"
        );
    }
}

/// Policy, limits and counters were measured, in memory and in Redis.
fn check_decisions(found: &Value) {
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7, "{rows:?}");
    for row in rows {
        assert!(row["per_second"].as_f64().unwrap() > 0.0 && row["p99_us"].as_f64().unwrap() > 0.0, "{row}");
    }
}

/// Every time of each push and each revocation is there.
fn check_changes(found: &Value) {
    let rows = found["rows"].as_array().unwrap();
    let mut samples = Vec::new();
    for row in rows {
        let times = row["ms"].as_array().unwrap();
        assert!(times.iter().all(|time| time.as_f64().unwrap() > 0.0), "{row}");
        samples.push(times.len());
    }
    // Two places of a push, off and on; two effects of each of four losses.
    assert_eq!(samples, [[6; 2].as_slice(), &[3; 8]].concat(), "{rows:?}");
}

/// Both protocols, and MCP with a key, were measured with few and with many connections, no call failed, and every task and push counted.
fn check_agents(found: &Value) {
    let measured = found["measurements"].as_array().unwrap();
    assert!(measured.iter().all(|one| one["errors"] == 0 && one["gateway_cpu_us"].as_f64().unwrap() > 0.0));
    let rows: BTreeSet<_> = measured.iter().map(|one| one["row"].as_str().unwrap()).collect();
    assert_eq!((rows.len(), measured.len()), (5, 10), "{rows:?}");
    assert_eq!(found["tasks"]["tasks"], 50);
    let pushes = &found["pushes"];
    // Ten receivers of each task have at least its end.
    let least = pushes["tasks"].as_u64().unwrap() * 10;
    assert!(pushes["delays_ms"].as_array().unwrap().len() as u64 >= least, "{pushes}");
}

/// Both sides had calls whose spans and metrics were read, one service was down, and the edit took effect.
fn check_first_day(found: &Value) {
    let telemetry = &found["telemetry"];
    let measured = telemetry["measurements"].as_array().unwrap();
    assert!(measured.iter().all(|one| one["errors"] == 0 && one["gateway_cpu_us"].as_f64().unwrap() > 0.0));
    let rows: Vec<_> = measured.iter().map(|one| one["row"].as_str().unwrap()).collect();
    assert_eq!(rows, ["telemetry off", "telemetry on", "telemetry on", "telemetry off"]);
    assert_eq!(telemetry["seen"], telemetry["calls"], "{telemetry}");
    let catalog = &found["catalog"];
    assert_eq!((&catalog["tools"], &catalog["listed"]), (&500.into(), &2.into()), "{catalog}");
    assert_eq!(found["edits"]["seconds"].as_array().unwrap().len(), 1);
}

/// Each row was measured on both sides with few and with many connections.
fn check_comparison(found: &Value) {
    let compared = found["compared"].as_array().unwrap();
    let with = |figure: &str| -> BTreeSet<_> {
        let of = compared
            .iter()
            .filter(|one| one["figure"] == figure && one["ratio"]["median"].as_f64().unwrap() > 0.0);
        of.map(|one| (one["cell"]["row"].as_str().unwrap(), one["cell"]["connections"].as_u64().unwrap()))
            .collect()
    };
    let all = ["gateway", "path", "path-modern"].into_iter().flat_map(|row| [(row, 8), (row, 64)]);
    assert_eq!(with("gateway CPU us"), all.collect());
    assert_eq!(with("Envoy CPU us").len(), 4, "the gateway alone has no Envoy");
    for side in ["own", "theirs"] {
        assert!(found[side].as_array().unwrap().iter().all(|one| one["errors"] == 0), "{side}");
    }
}

/// Every language was measured in every way, and each figure is there.
fn check_plugins(found: &Value) {
    let languages = found["languages"].as_array().unwrap();
    let names: Vec<_> = languages.iter().map(|one| one["language"].as_str().unwrap()).collect();
    assert_eq!(names, ["python", "node", "java"]);
    for language in languages {
        let loops = language["loops"].as_array().unwrap();
        let ways: BTreeSet<_> = loops
            .iter()
            .map(|one| (one["way"].as_str().unwrap(), one["in_flight"].as_u64().unwrap()))
            .collect();
        assert_eq!(ways, [("bare", 1), ("bare", 16), ("runtime", 1), ("runtime", 16)].into());
        for one in loops {
            let wanted = if one["in_flight"] == 1 { &found["calls"] } else { &found["crowded_calls"] };
            assert!(one["calls"] == *wanted && one["p50_us"].as_f64().unwrap() > 0.0, "{one}");
        }
        for kind in ["cold_ready_ms", "cold_answer_ms", "cold_bare_ms"] {
            assert_eq!(
                language[kind].as_array().unwrap().len() as u64,
                found["starts"].as_u64().unwrap(),
                "{kind}"
            );
        }
        for memory in [&language["unused"], &language["used"]] {
            assert!(memory["rss_kib"].as_u64().unwrap() > 1024, "{memory}");
        }
    }
}

/// The JSON, beside which stands the table.
fn report(directory: &Path) -> Value {
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    let with = |ending: &str| files.iter().find(|file| file.extension().is_some_and(|it| it == ending));
    assert!(with("md").is_some(), "{files:?}");
    serde_json::from_slice(&std::fs::read(with("json").unwrap()).unwrap()).unwrap()
}
