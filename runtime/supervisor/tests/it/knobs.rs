//! Tests of the restrictions and limits of each language's interpreter, read back from the live process.

use std::path::Path;

use serde_json::{Value, json};

use super::attempts::{DISK_MIB, FILES, Language, MEMORY, ask, start};

const MIB: f64 = 1_048_576.0;
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const MEMORY_MIB: f64 = MEMORY as f64 / MIB;

/// Returns what a worker of this language finds about itself, and where its plugins are.
async fn knobs(language: Language) -> (Value, String) {
    let stack = start(|plugins| language.install(plugins, "knobs", &json!({})), |command| command).await;
    let found = ask(&stack, "knobs", &json!({"knobs": true})).await;
    let directory = found["directory"].as_str().unwrap();
    assert!(
        Path::new(directory).starts_with(stack.state.join("w")),
        "it starts in its work directory: {found:#}"
    );
    (found, stack.plugins().display().to_string())
}

#[tokio::test]
async fn pythons_bounds_hold() {
    let (found, plugins) = knobs(Language::Python).await;
    for (knob, value) in [
        ("isolated", json!(1)),
        ("no_user_site", json!(1)),
        ("ignore_environment", json!(1)),
        ("safe_path", json!(true)),
        ("bytecode", json!(false)),
        ("faulthandler", json!(true)),
        ("recursion_limit", json!(1000)),
        ("umask", json!(0o077)),
        ("stdin", json!("")),
        ("limits", json!({"CORE": 0, "NOFILE": FILES, "FSIZE": DISK_MIB << 20})),
    ] {
        assert_eq!(found[knob], value, "{knob}: {found:#}");
    }
    assert!(
        found["recursion"].as_str().unwrap().starts_with("maximum recursion depth exceeded"),
        "{found:#}"
    );
    // The plugin's package and the runtime's own environment, and nothing of the machine's Python.
    let mut allowed = vec![format!("{plugins}/knobs/1.0.0/package")];
    allowed.extend(
        found["prefixes"].as_array().unwrap().iter().map(|prefix| prefix.as_str().unwrap().to_owned()),
    );
    for entry in found["path"].as_array().unwrap() {
        let entry = Path::new(entry.as_str().unwrap());
        assert!(entry.is_absolute() && allowed.iter().any(|root| entry.starts_with(root)), "{found:#}");
    }
}

#[tokio::test]
async fn nodes_bounds_hold() {
    let (found, _) = knobs(Language::Node).await;
    for (knob, value) in [
        ("push", "TypeError"),
        ("extend", "TypeError"),
        ("polluted", "undefined"),
        ("proto", "undefined"),
        ("addon", "ERR_DLOPEN_DISABLED"),
        ("child", "ERR_ACCESS_DENIED"),
        ("worker", "ERR_ACCESS_DENIED"),
        ("inspector", "ERR_ACCESS_DENIED"),
    ] {
        assert_eq!(found[knob], value, "{knob}: {found:#}");
    }
    let permissions = json!({
        "machine": false, "package": true, "packageWrite": false, "work": true, "child": false, "worker": false,
        "addons": false,
    });
    assert_eq!(found["permissions"], permissions);
    // Three quarters of the memory are for the old generation; the rest is the young one's.
    let heap = found["heap"].as_f64().unwrap() / MIB;
    assert!((MEMORY_MIB * 0.75..MEMORY_MIB).contains(&heap), "{heap} MiB");
}

#[tokio::test]
async fn javas_bounds_hold() {
    let (found, _) = knobs(Language::Java).await;
    for (knob, value) in [
        ("ExitOnOutOfMemoryError", "true"),
        ("DisableAttachMechanism", "true"),
        ("UseSharedSpaces", "true"),
        ("UsePerfData", "false"),
        ("UseSerialGC", "true"),
        ("TieredStopAtLevel", "1"),
        ("ThreadStackSize", "512"),
    ] {
        assert_eq!(found[knob], value, "{knob}: {found:#}");
    }
    let bytes = |knob: &str| found[knob].as_str().unwrap().parse::<f64>().unwrap() / MIB;
    assert_eq!(bytes("MaxHeapSize"), MEMORY_MIB / 2.0);
    assert_eq!(bytes("MaxMetaspaceSize"), MEMORY_MIB / 4.0);
    // The collector provides the heap except one of its two halves for survivors.
    let heap = found["maxMemory"].as_f64().unwrap() / MIB;
    assert!((MEMORY_MIB / 2.0 * 0.9..=MEMORY_MIB / 2.0).contains(&heap), "{heap} MiB");
    assert_eq!(found["metaspace"].as_f64().unwrap() / MIB, MEMORY_MIB / 4.0);
    assert!(found["SharedArchiveFile"].as_str().unwrap().ends_with("/worker.jsa"), "{found:#}");
    assert_eq!(found["archiveMapped"], true, "the archive fits this Java and these flags: {found:#}");
    assert_eq!(found["temporary"], found["directory"]);
}
