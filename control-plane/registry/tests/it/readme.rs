//! The samples in `primitives/README.md` compile without faults.

use std::fs;
use std::path::Path;

use asp_registry::{Source, check, compile_mcp};

#[test]
fn the_samples_of_the_readme_compile() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives/README.md");
    let readme = fs::read_to_string(file).expect("primitives/README.md is readable");
    let mut sources = Vec::new();
    for block in readme.split("```yaml\n# ").skip(1) {
        let (path, rest) = block.split_once('\n').expect("a sample starts with its path");
        let (text, _) = rest.split_once("```").expect("a sample ends");
        sources.push(Source { path: path.to_string(), text: text.to_string() });
    }
    assert_eq!(sources.len(), 2);
    let report = check(&sources);
    assert_eq!(report.faults, []);
    assert_eq!(report.warnings, []);
    let server = report.catalog.expect("no fault").servers.remove(0);
    assert_eq!(compile_mcp(&server, "2026-07-28")["tools"][0]["name"], "forecast");
}
