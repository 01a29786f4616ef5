use super::*;
use std::os::unix::fs::symlink;

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
    fn install(&self, existing: Existing) -> Result<Report, InstallError> {
        install(&self.catalog, &self.root.path().join("src"), &self.root.path().join("out"), existing, None)
    }

    fn code(&self) -> PathBuf {
        self.root.path().join("src/s/plugins/p")
    }
}

#[test]
fn a_plugin_is_installed_once_and_then_unchanged() {
    let fixture = fixture(SPEC);
    let first = fixture.install(Existing::Keep).unwrap();
    assert_eq!(first.installed[0].outcome, Outcome::Installed);
    let place = fixture.root.path().join("out/p/1.0.0");
    assert_eq!(fs::read_to_string(place.join("package/main.py")).unwrap(), "print(1)\n");
    assert!(place.join("package/pkg/data.json").is_file());
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(place.join("plugin.json")).unwrap()).unwrap();
    assert_eq!(manifest["artifactSha256"], first.installed[0].artifact_sha256);
    assert_eq!(manifest["entrypoint"], "main.py");
    assert_eq!(fixture.install(Existing::Keep).unwrap().installed[0].outcome, Outcome::Unchanged);
}

#[test]
fn a_version_keeps_its_code_unless_replacing_is_asked_for() {
    let fixture = fixture(SPEC);
    fixture.install(Existing::Keep).unwrap();
    fs::write(fixture.code().join("main.py"), "print(2)\n").unwrap();
    assert!(matches!(fixture.install(Existing::Keep), Err(InstallError::Changed { .. })));
    assert_eq!(fixture.install(Existing::Replace).unwrap().installed[0].outcome, Outcome::Replaced);
    let installed = fixture.root.path().join("out/p/1.0.0/package/main.py");
    assert_eq!(fs::read_to_string(installed).unwrap(), "print(2)\n");
}

#[test]
fn a_pinned_package_must_be_the_one_beside_the_spec() {
    let pinned = SPEC.replace("main.py}", &format!("main.py, artifactSha256: {}}}", "ab".repeat(32)));
    assert!(matches!(fixture(&pinned).install(Existing::Keep), Err(InstallError::Pinned { .. })));
}

#[test]
fn a_link_is_no_part_of_a_package() {
    let fixture = fixture(SPEC);
    symlink("/etc/passwd", fixture.code().join("passwd")).unwrap();
    let error = fixture.install(Existing::Keep).unwrap_err();
    assert!(matches!(error, InstallError::Package { source: PackageError::Special(_), .. }), "{error}");
    assert!(!fixture.root.path().join("out/p/1.0.0").exists());
}

#[test]
fn what_tools_leave_behind_does_not_change_the_digest() {
    let fixture = fixture(SPEC);
    let before = Package::read(&fixture.code()).unwrap().sha256;
    fs::create_dir(fixture.code().join("__pycache__")).unwrap();
    fs::write(fixture.code().join("__pycache__/main.pyc"), "x").unwrap();
    assert_eq!(Package::read(&fixture.code()).unwrap().sha256, before);
    // A byte moved from one file's name to its content is another package.
    fs::rename(fixture.code().join("main.py"), fixture.code().join("main.p")).unwrap();
    assert_ne!(Package::read(&fixture.code()).unwrap().sha256, before);
}

#[test]
fn a_java_plugin_is_its_jars() {
    let fixture = fixture(SPEC);
    fs::write(fixture.code().join("pom.xml"), "<project/>").unwrap();
    assert!(matches!(Package::read(&fixture.code()), Err(PackageError::NotBuilt(_))));
    fs::create_dir_all(fixture.code().join("target/dependency")).unwrap();
    fs::write(fixture.code().join("target/p.jar"), "1").unwrap();
    fs::write(fixture.code().join("target/p-sources.jar"), "1").unwrap();
    fs::write(fixture.code().join("target/dependency/lib.jar"), "2").unwrap();
    let copy = fixture.root.path().join("copy");
    Package::read(&fixture.code()).unwrap().write(&copy).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["lib.jar", "p.jar"]);
}

#[test]
fn a_plugin_without_code_is_reported_and_not_an_error() {
    let fixture = fixture(SPEC);
    fs::remove_dir_all(fixture.code()).unwrap();
    let report = fixture.install(Existing::Keep).unwrap();
    assert_eq!((report.installed, report.without_code), (vec![], vec!["p".to_owned()]));
}
