//! The package files, read by the usual tools of their languages.

use std::collections::BTreeSet;
use std::process::Command;

use super::*;

fn unit(language: &str) -> Unit {
    Unit {
        server: "s".into(),
        id: "greet_all".into(),
        version: "1.2.0-rc.1".into(),
        language: language.into(),
        pins: BTreeSet::new(),
        primitives: Vec::new(),
        folder: None,
    }
}

struct Fixture {
    root: tempfile::TempDir,
    unit: Unit,
}

impl Fixture {
    fn new(language: &str, files: &[(&str, &str)]) -> Fixture {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("code").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir(root.path().join("out")).unwrap();
        Fixture { root, unit: unit(language) }
    }

    fn code(&self) -> PathBuf {
        self.root.path().join("code")
    }

    fn pack(&self) -> anyhow::Result<PackageFile> {
        pack(&self.unit, &self.code(), &self.root.path().join("out"))
    }

    fn fault(&self) -> String {
        format!("{:#}", self.pack().unwrap_err())
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn names(archive: &Path) -> Vec<String> {
    let archive = ::zip::ZipArchive::new(fs::File::open(archive).unwrap()).unwrap();
    archive.file_names().map(|name| name.unwrap().into_owned()).collect()
}

#[test]
fn the_same_files_make_the_same_bytes_whenever_and_wherever_they_lie() {
    for (language, file) in
        [("python", "main.py"), ("node", "main.mjs"), (super::super::unit::MCP_STDIO, "s.mjs")]
    {
        let bundle = r#"{"server": {"mcp_config": {"command": "node", "args": ["${__dirname}/s.mjs"]}}}"#;
        let files = [(file, "x = 1\n"), ("b/data.json", "{}"), ("manifest.json", bundle)];
        let first = Fixture::new(language, &files);
        let mut turned = files;
        turned.reverse();
        let second = Fixture::new(language, &turned);
        let file = fs::File::options().write(true).open(second.code().join(file)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let one = first.pack().unwrap();
        let two = second.pack().unwrap();
        assert_eq!(fs::read(&one.path).unwrap(), fs::read(&two.path).unwrap(), "{language}");
        assert_eq!(
            (one.sha256.clone(), one.size),
            digest(&one.path).map(|(size, sha256)| (sha256, size)).unwrap()
        );
        fs::write(second.code().join("b/data.json"), "[]").unwrap();
        assert_ne!(second.pack().unwrap().sha256, one.sha256, "{language}");
        let left: Vec<_> = fs::read_dir(first.root.path().join("out")).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing but the package stays");
    }
}

#[test]
fn pip_installs_the_wheel() {
    let made = Fixture::new(
        "python",
        &[("main.py", "import b.c\n"), ("b/c.py", "x = 1\n"), ("b/it's, odd.txt", "")],
    );
    let package = made.pack().unwrap();
    assert_eq!(package.name, "greet_all-1.2.0rc1-py3-none-any.whl");
    let venv = made.root.path().join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let pip = venv.join("bin/pip");
    let arguments = ["install", "--no-deps", "--no-index", "--disable-pip-version-check"];
    run(Command::new(&pip).args(arguments).arg(&package.path));
    let shown = run(Command::new(&pip).args(["--disable-pip-version-check", "show", "-f", "greet-all"]));
    assert!(shown.contains("Version: 1.2.0rc1") && shown.contains("it's, odd.txt"), "{shown}");
    run(Command::new(venv.join("bin/python")).args(["-c", "import main; assert main.b.c.x == 1"]));
    // Every file must be in RECORD with its digest; pip itself does not report differences.
    let check = "import sys, zipfile, csv, base64, hashlib, io\n\
        z = zipfile.ZipFile(sys.argv[1]); r = [n for n in z.namelist() if n.endswith('RECORD')][0]\n\
        rows = {p: (h, s) for p, h, s in csv.reader(io.StringIO(z.read(r).decode()))}\n\
        assert set(rows) == set(z.namelist()), rows\n\
        for p, (h, s) in rows.items():\n    b = z.read(p)\n    d = base64.urlsafe_b64encode(hashlib.sha256(b).digest())\n    \
        assert p == r or (h == 'sha256=' + d.decode().rstrip('=') and int(s) == len(b)), p\n";
    run(Command::new("python3").args(["-c", check]).arg(&package.path));
}

#[test]
fn an_npm_tarball_has_its_description_and_its_modules() {
    let made =
        Fixture::new("node", &[("main.mjs", ""), ("node_modules/x/index.js", ""), ("run", "#!/bin/sh\n")]);
    fs::create_dir_all(made.code().join("node_modules/.bin")).unwrap();
    std::os::unix::fs::symlink("../x/index.js", made.code().join("node_modules/.bin/x")).unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(made.code().join("run"), fs::Permissions::from_mode(0o700)).unwrap();
    let package = made.pack().unwrap();
    assert_eq!(package.name, "greet_all-1.2.0-rc.1.tgz");
    let listed = run(Command::new("tar").arg("-tvzf").arg(&package.path));
    for line in ["package/main.mjs", "package/node_modules/x/index.js", "package/package.json"] {
        assert!(listed.lines().any(|listed| listed.ends_with(line)), "{listed}");
    }
    assert!(
        listed.lines().any(|line| line.starts_with("-rwxr-xr-x") && line.ends_with("package/run")),
        "{listed}"
    );
    let description = run(Command::new("tar").arg("-xOzf").arg(&package.path).arg("package/package.json"));
    let description: serde_json::Value = serde_json::from_str(&description).unwrap();
    assert_eq!(description, serde_json::json!({"name": "greet_all", "version": "1.2.0-rc.1"}));
}

#[test]
fn what_only_development_needs_is_not_packed() {
    let lock = r#"{"packages": {
        "": {"devDependencies": {"typescript": "5"}},
        "node_modules/typescript": {"dev": true},
        "node_modules/lib": {},
        "node_modules/lib/node_modules/tool": {"dev": true}
    }}"#;
    let files = [
        ("main.ts", ""),
        ("main.test.ts", ""),
        ("tsconfig.json", "{}"),
        ("package.json", "{}"),
        ("package-lock.json", lock),
        (".npmrc", "//registry.example.org/:_authToken=secret"),
        (".gitignore", ""),
        ("node_modules/.package-lock.json", lock),
        ("node_modules/typescript/tsc.js", ""),
        ("node_modules/@types/node/index.d.ts", ""),
        ("node_modules/@asp/plugin/index.js", ""),
        ("node_modules/lib/index.js", ""),
        ("node_modules/lib/a.test.js", ""),
        ("node_modules/lib/node_modules/tool/index.js", ""),
    ];
    let made = Fixture::new("node", &files);
    let package = made.pack().unwrap();
    let listed = run(Command::new("tar").arg("-tzf").arg(&package.path));
    let packed = ["main.ts", "node_modules/lib/a.test.js", "node_modules/lib/index.js", "package.json"];
    assert_eq!(listed.lines().collect::<Vec<_>>(), packed.map(|file| format!("package/{file}")));
}

#[test]
fn a_folders_own_package_json_stays_as_it_is() {
    let own = r#"{"name": "@team/greet", "version": "9.9.9", "type": "module"}"#;
    let made = Fixture::new("node", &[("main.js", ""), ("package.json", own)]);
    let package = made.pack().unwrap();
    let packed = run(Command::new("tar").arg("-xOzf").arg(&package.path).arg("package/package.json"));
    assert_eq!(packed, own);
}

/// A jar with one class and Maven's directories.
fn jar(path: &Path, entries: &[&str]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = ::zip::ZipWriter::new(fs::File::create(path).unwrap());
    let options = ::zip::write::SimpleFileOptions::default();
    for entry in entries {
        if entry.ends_with('/') {
            writer.add_directory(*entry, options).unwrap();
        } else {
            writer.start_file(*entry, options).unwrap();
        }
    }
    writer.finish().unwrap();
}

#[test]
fn a_java_plugin_is_mavens_jar_with_what_it_needs_inside() {
    let made = Fixture::new("java", &[("pom.xml", "<project/>")]);
    let target = made.code().join("target");
    assert!(made.fault().contains("Maven has built no jar yet"));
    jar(&target.join("p-1.jar"), &["a/", "a/B.class", "META-INF/", "META-INF/MANIFEST.MF"]);
    jar(&target.join("dependency/lib.jar"), &["c/D.class"]);
    for extra in ["p-1-sources.jar", "p-1-javadoc.jar", "original-p-1.jar"] {
        fs::write(target.join(extra), "no jar at all").unwrap();
    }
    let package = made.pack().unwrap();
    assert_eq!(names(&package.path), ["META-INF/MANIFEST.MF", "META-INF/lib/lib.jar", "a/B.class"]);
    jar(&target.join("p-2.jar"), &["a/B.class"]);
    assert!(made.fault().contains("several jars"));
}

#[test]
fn the_content_of_a_java_package_is_its_jar_and_the_jars_that_it_needs() {
    let made = Fixture::new("java", &[("pom.xml", "<project/>")]);
    let target = made.code().join("target");
    jar(&target.join("p-1.jar"), &["a/B.class"]);
    jar(&target.join("dependency/lib.jar"), &["c/D.class"]);
    let work = made.root.path().join("out");
    let files = content(&made.unit, &made.code(), &work).unwrap().files;
    let found: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.source.as_path())).collect();
    let own = work.join("greet_all-1.2.0-rc.1.jar");
    let library = target.join("dependency/lib.jar");
    assert_eq!(found, [("lib/lib.jar", library.as_path()), ("greet_all-1.2.0-rc.1.jar", own.as_path())]);
    assert_eq!(names(&own), ["META-INF/MANIFEST.MF", "a/B.class"]);
}

#[test]
fn the_content_of_a_node_package_has_a_description() {
    let made = Fixture::new("node", &[("main.mjs", "")]);
    let files = content(&made.unit, &made.code(), &made.root.path().join("out")).unwrap().files;
    let description = files.iter().find(|file| file.path == "package.json").unwrap();
    assert!(fs::read_to_string(&description.source).unwrap().contains("greet_all"));
    assert_eq!(files.len(), 2);
}

#[test]
fn compiled_classes_are_a_jar_without_their_sources() {
    let made = Fixture::new("java", &[("Main.java", ""), ("words.txt", "")]);
    assert!(made.fault().contains("has no code"), "not compiled");
    fs::create_dir(made.code().join("classes")).unwrap();
    fs::write(made.code().join("classes/Main.class"), "").unwrap();
    let package = made.pack().unwrap();
    assert_eq!(names(&package.path), ["META-INF/MANIFEST.MF", "Main.class", "words.txt"]);
}

#[test]
fn a_file_of_the_formats_own_is_not_overwritten() {
    let made = Fixture::new("python", &[("greet_all-1.2.0rc1.dist-info/RECORD", ""), ("main.py", "")]);
    assert!(made.fault().contains("the package format's own"));
}

#[test]
fn a_stdio_server_without_a_command_makes_no_bundle() {
    let made = Fixture::new(super::super::unit::MCP_STDIO, &[("server.mjs", "")]);
    assert!(made.fault().contains("has a manifest.json"));
}
