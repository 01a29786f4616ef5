use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use asp_registry::Catalog;

use super::pack::pack;
use super::*;

const SERVER: &str = "
apiVersion: asp/v1
name: s
title: S
protocols: [mcp]
defaultExposure: allow
auth: {schemes: [jwt], issuers: [dev]}
primitives: [{ref: s/p}]
";
const SPEC: &str = r#"
id: p
name: P
type: tool
version: 1.0.0
owner: a@example.com
summary: A plugin.
mutation: read_only
primitiveSchema: {input_schema: {type: object}}
exposure: {mcp: {tool: {enabled: true}}}
runtime: {mode: plugin, language: python, entrypoint: main.py}
"#;

struct Fixture {
    root: tempfile::TempDir,
    catalog: Catalog,
}

fn fixture(spec: &str) -> Fixture {
    let root = tempfile::tempdir().unwrap();
    let server = root.path().join("src/s");
    fs::create_dir_all(server.join("plugins/p/pkg")).unwrap();
    fs::write(server.join("server.yaml"), SERVER).unwrap();
    fs::write(server.join("p.yaml"), spec).unwrap();
    fs::write(server.join("plugins/p/main.py"), "print(1)\n").unwrap();
    fs::write(server.join("plugins/p/pkg/data.json"), "{}").unwrap();
    let report = asp_registry::check(&asp_registry::read_dir(&root.path().join("src")).unwrap());
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    Fixture { root, catalog: report.catalog.unwrap() }
}

impl Fixture {
    fn install(&self, existing: ConflictPolicy) -> anyhow::Result<InstallReport> {
        install(&self.units(), &self.root.path().join("out"), existing, None)
    }

    fn units(&self) -> Vec<Unit> {
        units(&self.catalog.servers, Some(&self.root.path().join("src")))
    }

    /// Returns the digest of the package built from the current code.
    fn digest(&self) -> String {
        let out = tempfile::tempdir().unwrap();
        pack(&self.units()[0], &self.code(), out.path()).unwrap().sha256
    }

    fn code(&self) -> PathBuf {
        self.root.path().join("src/s/plugins/p")
    }
}

#[test]
fn a_plugin_is_installed_once_and_then_unchanged() {
    let fixture = fixture(SPEC);
    let first = fixture.install(ConflictPolicy::Keep).unwrap();
    assert_eq!(first.installed[0].outcome, InstallOutcome::Installed);
    let place = fixture.root.path().join("out/p/1.0.0");
    assert_eq!(fs::read_to_string(place.join("package/main.py")).unwrap(), "print(1)\n");
    assert!(place.join("package/pkg/data.json").is_file());
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.join("plugin.json")).unwrap()).unwrap();
    assert_eq!(manifest["artifactSha256"], first.installed[0].artifact_sha256);
    assert_eq!(manifest["entrypoint"], "main.py");
    assert_eq!(
        fixture.install(ConflictPolicy::Keep).unwrap().installed[0].outcome,
        InstallOutcome::Unchanged
    );
}

#[test]
fn a_version_keeps_its_code_unless_replacing_is_asked_for() {
    let fixture = fixture(SPEC);
    fixture.install(ConflictPolicy::Keep).unwrap();
    fs::write(fixture.code().join("main.py"), "print(2)\n").unwrap();
    let error = fixture.install(ConflictPolicy::Keep).unwrap_err();
    assert!(error.to_string().contains("is installed with other code"), "{error}");
    assert_eq!(
        fixture.install(ConflictPolicy::Replace).unwrap().installed[0].outcome,
        InstallOutcome::Replaced
    );
    let installed = fixture.root.path().join("out/p/1.0.0/package/main.py");
    assert_eq!(fs::read_to_string(installed).unwrap(), "print(2)\n");
}

#[test]
fn a_reader_finds_a_plugin_at_every_moment_of_its_replacement() {
    let fixture = fixture(SPEC);
    fixture.install(ConflictPolicy::Keep).unwrap();
    let manifest = fixture.root.path().join("out/p/1.0.0/plugin.json");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut missed = 0;
            while !done.load(Ordering::Relaxed) {
                missed += u32::from(fs::read(&manifest).is_err());
            }
            missed
        });
        for round in 0..100 {
            fs::write(fixture.code().join("main.py"), format!("print({round})\n")).unwrap();
            fixture.install(ConflictPolicy::Replace).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(reader.join().unwrap(), 0, "looks that found no plugin");
    });
    let left: Vec<_> = fs::read_dir(fixture.root.path().join("out")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "what was replaced is removed: {left:?}");
}

#[test]
fn what_is_staged_changes_nothing_until_it_is_placed() {
    let fixture = fixture(SPEC);
    fixture.install(ConflictPolicy::Keep).unwrap();
    fs::write(fixture.code().join("main.py"), "print(2)\n").unwrap();
    let out = fixture.root.path().join("out");
    let stage = || stage(&fixture.units()[0], &fixture.code(), &out, ConflictPolicy::Replace).unwrap();
    let code = || fs::read_to_string(out.join("p/1.0.0/package/main.py")).unwrap();
    assert_eq!(stage().installed().outcome, InstallOutcome::Replaced);
    assert_eq!((code().as_str(), fs::read_dir(&out).unwrap().count()), ("print(1)\n", 1), "it was dropped");
    stage().place().unwrap();
    assert_eq!(code(), "print(2)\n");
}

#[test]
fn files_are_copied_without_a_package_unless_one_is_pinned() {
    let sources = fixture(SPEC);
    let out = sources.root.path().join("out");
    let stage = |fixture: &Fixture| {
        stage_files(&fixture.units()[0], &fixture.code(), &out, ConflictPolicy::Replace).unwrap()
    };
    let first = stage(&sources).place().unwrap();
    assert_ne!(first.artifact_sha256, sources.digest(), "the digest of a package");
    assert_eq!(first.outcome, InstallOutcome::Installed);
    let package = out.join("p/1.0.0/package");
    assert!(package.join("main.py").is_file() && package.join("pkg/data.json").is_file());
    assert_eq!(fs::read_dir(&package).unwrap().count(), 2);
    assert_eq!(stage(&sources).installed().outcome, InstallOutcome::Unchanged);
    fs::write(sources.code().join("main.py"), "print(2)\n").unwrap();
    assert_eq!(stage(&sources).place().unwrap().outcome, InstallOutcome::Replaced);
    assert_eq!(fs::read_to_string(package.join("main.py")).unwrap(), "print(2)\n");

    let digest = fixture(SPEC).digest();
    let pinned = fixture(&SPEC.replace("main.py}", &format!("main.py, artifactSha256: {digest}}}")));
    assert_eq!(stage(&pinned).installed().artifact_sha256, digest);
}

#[test]
fn a_schema_file_that_is_missing_or_older_than_the_code_is_outdated() {
    let fixture = fixture(SPEC);
    let root = fixture.root.path().join("src");
    let outdated = || {
        let sources = asp_registry::read_dir(&root).unwrap();
        schemas::outdated(&root, &sources, &fixture.units()).unwrap().len()
    };
    assert_eq!(outdated(), 0, "the schemas are in the spec");
    let file = root.join("s/p.schema.json");
    fs::write(&file, "{}").unwrap();
    let change = |path: &PathBuf, seconds| {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    };
    let code = fixture.code().join("main.py");
    change(&code, 10);
    change(&fixture.code().join("pkg/data.json"), 10);
    change(&file, 20);
    assert_eq!(outdated(), 0);
    change(&code, 30);
    assert_eq!(outdated(), 1);
}

#[test]
fn a_pinned_package_must_be_the_one_beside_the_spec() {
    let pinned = SPEC.replace("main.py}", &format!("main.py, artifactSha256: {}}}", "ab".repeat(32)));
    let error = fixture(&pinned).install(ConflictPolicy::Keep).unwrap_err();
    assert!(error.to_string().contains("its spec pins the package"), "{error}");
}

#[test]
fn a_pin_is_the_package_files_digest() {
    let digest = fixture(SPEC).digest();
    let pinned = SPEC.replace("main.py}", &format!("main.py, artifactSha256: {digest}}}"));
    let installed = fixture(&pinned).install(ConflictPolicy::Keep).unwrap().installed;
    assert_eq!(installed[0].artifact_sha256, digest);
}

#[test]
fn a_link_is_no_part_of_a_package() {
    let fixture = fixture(SPEC);
    symlink("/etc/passwd", fixture.code().join("passwd")).unwrap();
    let error = fixture.install(ConflictPolicy::Keep).unwrap_err();
    assert!(format!("{error:#}").contains("is neither a file nor a folder"), "{error:#}");
    assert!(!fixture.root.path().join("out/p/1.0.0").exists());
}

#[test]
fn npms_links_to_the_shim_and_to_development_dependencies_are_left_out() {
    let fixture = fixture(SPEC);
    let package = r#"{"devDependencies": {"our-types": "file:../types"}, "dependencies": {"our-code": "file:../code"}}"#;
    fs::write(fixture.code().join("package.json"), package).unwrap();
    let before = fixture.digest();
    let mark = fingerprint::of(&fixture.code(), "node");
    let modules = fixture.code().join("node_modules");
    fs::create_dir_all(modules.join("@asp")).unwrap();
    symlink("../../../../../shim", modules.join("@asp/plugin")).unwrap();
    symlink("../../../types", modules.join("our-types")).unwrap();
    assert_eq!(fixture.digest(), before);
    assert_eq!(fingerprint::of(&fixture.code(), "node"), mark);
    assert!(mark.is_some());
    symlink("../../../code", modules.join("our-code")).unwrap();
    let refused = fixture.install(ConflictPolicy::Keep).unwrap_err();
    let refused = format!("{refused:#}");
    assert!(refused.contains("our-code"), "{refused}");
    fs::remove_file(modules.join("our-code")).unwrap();
    fs::create_dir(fixture.code().join("src")).unwrap();
    symlink("/etc/passwd", fixture.code().join("src/our-types")).unwrap();
    assert!(fixture.install(ConflictPolicy::Keep).is_err(), "a link elsewhere is refused");
}

#[test]
fn what_tools_leave_behind_does_not_change_the_digest() {
    let fixture = fixture(SPEC);
    let before = fixture.digest();
    fs::create_dir(fixture.code().join("__pycache__")).unwrap();
    fs::write(fixture.code().join("__pycache__/main.pyc"), "x").unwrap();
    assert_eq!(fixture.digest(), before);
    fs::rename(fixture.code().join("main.py"), fixture.code().join("main.p")).unwrap();
    assert_ne!(fixture.digest(), before);
}

#[test]
fn a_plugin_without_code_is_reported_and_not_an_error() {
    let fixture = fixture(SPEC);
    fs::remove_dir_all(fixture.code()).unwrap();
    let report = fixture.install(ConflictPolicy::Keep).unwrap();
    assert_eq!((report.installed, report.without_code), (vec![], vec!["p".to_owned()]));
}

#[test]
fn primitives_of_one_package_are_one_unit_with_a_part_for_each_in_its_manifest() {
    let fixture = fixture(SPEC);
    let server = fixture.root.path().join("src/s");
    let both = "primitives: [{ref: s/p}, {ref: s/q}]";
    fs::write(server.join("server.yaml"), SERVER.replace("primitives: [{ref: s/p}]", both)).unwrap();
    let joined = SPEC.replace("id: p", "id: q").replace("main.py}", "\"main.py:q\", package: p}");
    fs::write(server.join("q.yaml"), joined).unwrap();
    let report = asp_registry::check(&asp_registry::read_dir(&fixture.root.path().join("src")).unwrap());
    let catalog = report.catalog.unwrap_or_else(|| panic!("{:?}", report.faults));
    let units = units(&catalog.servers, Some(&fixture.root.path().join("src")));
    let ids: Vec<_> = units.iter().map(|unit| (unit.id.as_str(), unit.primitives.len())).collect();
    assert_eq!((ids, units[0].folder.as_ref()), (vec![("p", 2)], Some(&fixture.code())));
    let before = fixture.digest();
    let out = fixture.root.path().join("out");
    let installed = install(&units, &out, ConflictPolicy::Keep, None).unwrap().installed;
    assert_eq!(installed[0].artifact_sha256, before, "the package is the code alone");
    let manifest = fs::read_to_string(out.join("p/1.0.0/plugin.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["primitives"]["p"]["entrypoint"], "main.py");
    assert_eq!(manifest["primitives"]["q"]["entrypoint"], "main.py:q");
}

const STDIO: &str = "runtime: {mode: mcp-stdio, package: \"@scope/tools@2.0.0\", tool: theirs}";

#[test]
fn primitives_of_one_stdio_server_share_its_package_and_its_pinned_command() {
    let line = SPEC.lines().last().unwrap();
    let one = SPEC.replace(line, STDIO);
    let root = tempfile::tempdir().unwrap();
    let server = root.path().join("src/s");
    let code = server.join("plugins/scope__tools");
    fs::create_dir_all(&code).unwrap();
    let both = "primitives: [{ref: s/p}, {ref: s/q}]";
    fs::write(server.join("server.yaml"), SERVER.replace("primitives: [{ref: s/p}]", both)).unwrap();
    fs::write(server.join("p.yaml"), &one).unwrap();
    fs::write(server.join("q.yaml"), one.replace("id: p", "id: q").replace("theirs", "other")).unwrap();
    fs::write(code.join("server.mjs"), "").unwrap();
    let report = asp_registry::check(&asp_registry::read_dir(&root.path().join("src")).unwrap());
    let catalog = report.catalog.unwrap_or_else(|| panic!("{:?}", report.faults));
    let units = units(&catalog.servers, Some(&root.path().join("src")));
    assert_eq!((units.len(), units[0].primitives.len(), units[0].id.as_str()), (1, 2, "scope__tools"));
    let out = root.path().join("out");
    let missing = install(&units, &out, ConflictPolicy::Keep, None).unwrap_err();
    assert!(format!("{missing:#}").contains("manifest.json"), "{missing:#}");
    let bundle = r#"{"server": {"mcp_config": {"command": "node", "args": ["${__dirname}/server.mjs"]}}}"#;
    fs::write(code.join("manifest.json"), bundle).unwrap();
    install(&units, &out, ConflictPolicy::Keep, None).unwrap();
    let manifest = fs::read_to_string(out.join("scope__tools/2.0.0/plugin.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["command"], serde_json::json!(["node", "server.mjs"]));
    assert_eq!((&manifest["mode"], &manifest["id"]), (&"mcp-stdio".into(), &"scope__tools".into()));
    assert!(out.join("scope__tools/2.0.0/package/server.mjs").is_file());
}
